from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from tests.analysis.audit.tables import clean_sweep, entry, table

from batchlab.analysis.audit.against import reproduction
from batchlab.analysis.audit.audit import audit_table
from batchlab.analysis.audit.table import SweepTable
from batchlab.audit.document import audit_json, audit_text
from batchlab.audit.page import audit_page

HOSTILE = '<script>alert("x")</script>'


def test_the_text_tells_flaws_before_what_the_table_shows() -> None:
    text = audit_text(audit_table(table(*(entry(global_batch_size=b, steps=9, val_loss=2.0) for b in (8, 64)))))

    assert text.index("ERROR") < text.index("WARNING") < text.index("shows")


def test_json_holds_every_finding_and_size() -> None:
    rows = table(*clean_sweep())

    value = json.loads(audit_json(audit_table(rows), reproduction(rows, rows)))

    assert value["findings"] == []
    assert [size["global_batch_size"] for size in value["shows"][0]["sizes"]] == [8, 16, 32, 64]
    assert value["repeats"]["matched"] == 12


def test_the_page_is_whole_escapes_names_and_asks_for_nothing() -> None:
    entries = tuple(clean_sweep())
    page = audit_page(audit_table(SweepTable(HOSTILE, entries, (HOSTILE,))))

    assert HOSTILE not in page
    assert "default-src &#39;none&#39;" in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    HTMLParser().feed(page)


def test_the_picture_has_a_dot_for_every_configuration_that_is_not_far_off() -> None:
    page = audit_page(audit_table(table(*clean_sweep(), entry(global_batch_size=8, learning_rate=1.0, val_loss=11.0))))

    assert page.count("<circle") == 12
    assert page.count('class="best"') == 4
