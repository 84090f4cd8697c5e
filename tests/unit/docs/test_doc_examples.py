"""How examples are found in a page."""

from pathlib import Path

import pytest

from tests.support.doc_examples import examples_of, is_like

PAGE = """\
# A page

```python
a = 1
```

<!-- example: continues -->
```python
print(a)
```

<!-- example: output -->
```text
1
```

```console
$ rm -rf data
```

<!-- example: run -->

```console
$ echo one
one
$ echo two \\
  three
```

1. In a list:

   <!-- example: not run: it takes an hour -->
   ```python
   for _ in ():
       pass
   ```
"""


def _page(directory: Path, text: str) -> Path:
    page = directory / "a-page.md"
    page.write_text(text)
    return page


def test_blocks_become_programs_and_sessions(tmp_path: Path) -> None:
    program, session, late = examples_of(_page(tmp_path, PAGE))
    assert (program.line, program.text) == (4, "a = 1\n\nprint(a)\n")
    assert program.name == "a_page_line_4"
    assert program.output == "1\n"
    assert program.runs
    assert program.is_typed
    assert session.commands() == [("echo one", "one"), ("echo two \\\n  three", None)]
    assert not session.is_typed
    assert late.text == "for _ in ():\n    pass\n"
    assert not late.runs
    assert late.is_typed


@pytest.mark.parametrize("mark", ["not run", "not run: ", "skip", "only read"])
def test_a_mark_that_means_nothing_is_refused(tmp_path: Path, mark: str) -> None:
    with pytest.raises(ValueError, match="unknown mark"):
        examples_of(_page(tmp_path, f"<!-- example: {mark} -->\n```python\n```\n"))


def test_a_mark_before_a_block_that_is_no_example_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="before a block of json kind"):
        examples_of(_page(tmp_path, "<!-- example: run -->\n```json\n```\n"))


def test_a_program_asks_the_broker_of_the_test(tmp_path: Path) -> None:
    (example,) = examples_of(_page(tmp_path, '```python\nProducer("localhost:9092")\n```\n'))
    assert 'Producer("127.0.0.1:40001")' in example.program("127.0.0.1:40001")


def test_an_ellipsis_stands_for_any_lines() -> None:
    assert is_like("one\n…\nthree", "one\ntwo\ntwo\nthree\n")
    assert is_like("one\n…\nthree", "one\n\nthree\n")
    assert is_like("a (b)", "a (b)  \n")
    assert not is_like("one\nthree", "one\ntwo\nthree")
    assert not is_like("…\nthree", "one\ntwo")
