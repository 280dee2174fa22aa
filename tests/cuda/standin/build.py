"""Build the stand-in for CUDA's libraries: `python build.py TORCH_LIB CUDA_HEADERS CACHE` prints their folder.

What torch's own libraries need of a CUDA library is read with `nm`. Functions that are not written in the C++ files
next to this one do nothing and return 0, which means success in all of these libraries. A build is kept under the
digest of its sources and of torch's libraries' names and sizes.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Library(NamedTuple):
    """A library that torch loads: the names of its functions begin with `prefix`."""

    prefix: str
    file: str
    sources: tuple[str, ...] = ("libraries.cpp",)


# The first prefix that fits decides, so longer ones come first.
LIBRARIES = (
    Library("cublasLt", "libcublasLt.so.13"),
    Library("cublas", "libcublas.so.13"),
    Library("cusparseLt", "libcusparseLt.so.0"),
    Library("cusparse", "libcusparse.so.12"),
    Library("cusolver", "libcusolver.so.12"),
    Library("cudnn", "libcudnn.so.9"),
    Library("cufft", "libcufft.so.12"),
    Library("curand", "libcurand.so.10"),
    Library("cuFile", "libcufile.so.0"),
    Library("cupti", "libcupti.so.13"),
    Library("nvrtc", "libnvrtc.so.13"),
    Library("nccl", "libnccl.so.2"),
    Library("nvml", "libnvidia-ml.so.1"),  # nothing links to it: torch looks for it at run time
    Library("nvshmem", "libnvshmem_host.so.3"),
    Library("cuda", "libcudart.so.13", ("runtime.cpp", "settings.cpp")),
    Library("__cuda", "libcudart.so.13", ("runtime.cpp", "settings.cpp")),
    Library("cu", "libcuda.so.1"),
)


class Needs(NamedTuple):
    """What torch needs of one library: names of functions, and the version that it attaches to them, if any."""

    functions: set[str]
    versions: set[str]


def needed(torch_lib: Path) -> dict[str, Needs]:
    """By file of a CUDA library."""
    found: dict[str, Needs] = defaultdict(lambda: Needs(set(), set()))
    for library in sorted(torch_lib.glob("*.so")):
        for symbol in symbols("-D", "--undefined-only", library):
            name, _, version = symbol.partition("@")
            owner = next((each for each in LIBRARIES if name.startswith(each.prefix)), None)
            if owner is not None:
                found[owner.file].functions.add(name)
                found[owner.file].versions.update({version.lstrip("@")} - {""})
    return found


def symbols(*arguments: str | Path) -> list[str]:
    """The names that `nm` lists."""
    listed = subprocess.run(["nm", *arguments], capture_output=True, text=True, check=True).stdout
    return [line.split()[-1] for line in listed.splitlines() if line.strip()]


def build(library: Library, needs: Needs, headers: Path, folder: Path) -> None:
    """Compile one library into `folder`."""
    name = re.sub(r"^lib|\.so.*$", "", library.file).upper().replace("-", "_")
    with tempfile.TemporaryDirectory() as scratch:
        objects = []
        for source in library.sources:
            objects.append(Path(scratch, source).with_suffix(".o"))
            options = ["-std=c++17", "-O1", "-fPIC", "-Wall", "-Werror", f"-I{headers}", f"-DSTANDIN_{name}"]
            subprocess.run(["g++", *options, "-c", HERE / source, "-o", objects[-1]], check=True)
        written = {symbol for each in objects for symbol in symbols("--defined-only", "--extern-only", each)}
        empty = Path(scratch, "empty.cpp")
        absent = sorted(needs.functions - written)
        empty.write_text('extern "C" {\n' + "".join(f"long {each}() {{ return 0; }}\n" for each in absent) + "}\n")
        linking = ["-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{library.file}"]
        if needs.versions:
            (version,) = needs.versions
            versions = Path(scratch, "versions.map")
            versions.write_text(f"{version} {{ global: *; }};\n")
            linking.append(f"-Wl,--version-script={versions}")
        subprocess.run(["g++", *linking, empty, *objects, "-o", folder / library.file], check=True)


def digest(torch_lib: Path) -> str:
    """Of everything that a build depends on."""
    content = hashlib.sha256()
    for file in sorted([*HERE.glob("*.cpp"), *HERE.glob("*.h"), Path(__file__)]):
        content.update(file.read_bytes())
    for library in sorted(torch_lib.glob("*.so")):
        content.update(f"{library.name} {library.stat().st_size}".encode())
    return content.hexdigest()[:16]


def main(torch_lib: Path, headers: Path, cache: Path) -> Path:
    """The folder with the libraries, built if it is not there."""
    built = cache / digest(torch_lib)
    if built.exists():
        return built
    cache.mkdir(parents=True, exist_ok=True)
    needs = needed(torch_lib)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        for library in {each.file: each for each in LIBRARIES}.values():
            build(library, needs.get(library.file, Needs(set(), set())), headers, Path(scratch))
        Path(scratch).rename(built)
        Path(scratch).mkdir()  # for the context manager to remove
    return built


if __name__ == "__main__":
    print(main(*map(Path, sys.argv[1:])))
