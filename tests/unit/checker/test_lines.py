"""Histories on disk: written, read back, merged; lines that are not operations are refused."""

from pathlib import Path

import pytest

from tests.checker.history import History, HistoryError, load, operations_in
from tests.checker.lines import encode
from tests.checker.model import clean_history
from tests.checker.operations import Outcome, Poll, Send

SEND = '["send","p","t",0,"v",1,2,"ok",5,null,null]'


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("seed", range(5))
def test_operations_come_back_as_they_were_written(tmp_path: Path, seed: int) -> None:
    operations = clean_history(seed)
    path = write(tmp_path / "history.jsonl", *map(encode, operations))
    assert list(operations_in([path])) == operations


def test_text_of_any_kind_survives(tmp_path: Path) -> None:
    send = Send("pröcess\n", ("t\u2028", 0), '"\\\u0000', 1, 2, Outcome.UNKNOWN, key="🔑")
    assert list(operations_in([write(tmp_path / "one", encode(send))])) == [send]


def test_files_of_several_processes_are_merged_by_time(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "one", encode(Send("a", ("t", 0), "2", 30, 40, Outcome.OK, 1))),
        write(
            tmp_path / "two",
            encode(Send("b", ("t", 0), "1", 10, 90, Outcome.OK, 0)),
            encode(Poll("r", 50, 60, [])),
        ),
        write(tmp_path / "three", encode(Poll("r", 5, 9, [(("t", 0), [0], ["1"])]))),
    ]
    history = load(paths)
    assert [send.value for send in history.sends] == ["1", "2"]
    assert [poll.invoked_ns for poll in history.polls] == [5, 50]
    assert history.count == 4


def test_names_that_repeat_are_one_object(tmp_path: Path) -> None:
    poll = '["poll","r",3,4,[["t",0,[5],["v"]]],true,null]'
    history = load([write(tmp_path / "one", SEND, poll)])
    (batch,) = next(history.polls).batches
    (send,) = history.sends
    assert batch[0] is send.partition
    assert batch[2][0] is send.value


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "expected a JSON array"),
        ("{}", "expected a JSON array that begins with a kind, found {}"),
        ("[]", "expected a JSON array that begins with a kind"),
        ("[1]", "expected a kind of operation (send, poll, assign"),
        ('["sent"]', 'found "sent"'),
        (SEND[:-1], "expected a JSON array"),
        ('["send","p"]', "expected 11 elements of a send, found 2"),
        (SEND.replace('"p"', "7"), "expected a process as a string, found 7"),
        (SEND.replace(",0,", ",-1,"), "expected a partition as a whole number from 0 on, found -1"),
        (SEND.replace(",0,", ",[],"), "expected a partition as a whole number from 0 on, found []"),
        (SEND.replace('"v"', "null"), "expected a value as a string, found null"),
        (SEND.replace("1,2", "3,2"), "expected completed not before invoked (3), found 2"),
        (SEND.replace("1,2", "1,2.5"), "expected completed as a whole number"),
        (SEND.replace('"ok"', '"maybe"'), 'one of ok, failed, unknown, found "maybe"'),
        (SEND.replace('"ok"', "[]"), "one of ok, failed, unknown, found []"),
        (SEND.replace('"ok"', '"unknown"'), "expected no offset of a send that is unknown"),
        (SEND.replace("5,null,null", "5,1,null"), "expected a transaction as a string, found 1"),
        ('["poll","r",1,2,[["t",0,[1]]],true,null]', "expected a batch as 4 elements, found 3"),
        ('["poll","r",1,2,[["t",0,[1],[]]],true,null]', "expected a value an offset, found 0 to 1"),
        ('["poll","r",1,2,[["t",0,[-1],["v"]]],true,null]', "expected an offset as a whole number"),
        ('["poll","r",1,2,[["t",0,[1],[2]]],true,null]', "expected a value as a string, found 2"),
        ('["poll","r",1,2,7,true,null]', "expected batches as a list, found 7"),
        ('["poll","r",1,2,[],"yes",null]', 'read committed as true or false, found "yes"'),
        ('["assign","r",1,[["t",0]]]', "expected a start as 3 elements, found 2"),
        ('["subscribe","r",1,"t"]', 'expected topics as a list, found "t"'),
        ('["rebalance","r",1,"gone",[]]', "one of assigned, revoked, lost"),
        ('["seek","r",1,"t",0,"end"]', "expected an offset as a whole number from 0 on"),
        ('["begin","p",1,null]', "expected a transaction as a string, found null"),
        ('["end","p",1,2,"x","stop","ok"]', "one of commit, abort"),
        ('["final","r",1,2,[["t",0,5,4]]]', "expected an end not below the start 5, found 4"),
        ('["topic","t",1]', "expected compacted as true or false, found 1"),
    ],
)
def test_a_malformed_line_is_refused_with_file_line_and_what_was_expected(
    tmp_path: Path, line: str, expected: str
) -> None:
    path = write(tmp_path / "history.jsonl", SEND, line)
    with pytest.raises(HistoryError) as refused:
        load([path])
    assert str(refused.value).startswith(f"{path}:2: expected ")
    assert expected in str(refused.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'["topic","\xff",true]\n')
    with pytest.raises(HistoryError, match=r"history\.jsonl:1: expected a JSON array"):
        load([path])


def test_refused_content_is_abbreviated_in_the_error(tmp_path: Path) -> None:
    path = write(tmp_path / "one", SEND.replace('"p"', str(list(range(1000)))))
    with pytest.raises(HistoryError) as refused:
        load([path])
    assert len(str(refused.value)) < len(str(path)) + 200


def test_an_empty_history_has_no_operations(tmp_path: Path) -> None:
    assert load([write(tmp_path / "none")]) == History()
