"""A script whose options are typer's, written as annotations."""

from typing import Annotated

import typer
from problem import Problem

app = typer.Typer()


@app.command()
def main(
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", help="Samples per step.")] = 16,
    learning_rate: Annotated[float, typer.Option()] = 0.01,
    num_steps: Annotated[int, typer.Option()] = 200,
    seed: int = 0,
):
    problem = Problem(seed)
    for step in range(num_steps):
        problem.step(learning_rate, [problem.batch(batch_size)])
    print(f"steps: {num_steps} eval_loss: {problem.evaluate():.5f}")


if __name__ == "__main__":
    app()
