"""A changed, lost, repeated or reordered record is noticed."""

import pytest

from raylog.loadtest.payload import BrokenPayloadError, Payload, SequenceCheck, open_payload


def test_what_was_sealed_is_opened() -> None:
    payload = Payload(sender=3, sequence=7, sent_at=1.5)
    for size in (1, 28, 29, 500):
        value = payload.seal(size)
        assert len(value) == max(size, 24)
        assert open_payload(value) == payload


def test_any_changed_byte_is_noticed() -> None:
    value = Payload(1, 2, 3.0).seal(60)
    for position in range(len(value)):
        changed = bytearray(value)
        changed[position] ^= 1
        with pytest.raises(BrokenPayloadError):
            open_payload(bytes(changed))


@pytest.mark.parametrize("value", [None, b"", b"short"])
def test_no_payload_at_all(value: bytes | None) -> None:
    with pytest.raises(BrokenPayloadError, match="a value of"):
        open_payload(value)


def test_senders_are_followed_apart() -> None:
    check = SequenceCheck()
    for sender, sequence in [(1, 5), (2, 0), (1, 6), (2, 1), (1, 7)]:
        check.take(Payload(sender, sequence, 0))


@pytest.mark.parametrize("wrong", [4, 5, 7])
def test_lost_repeated_and_reordered(wrong: int) -> None:
    check = SequenceCheck()
    check.take(Payload(1, 5, 0))
    with pytest.raises(BrokenPayloadError, match=f"record {wrong}, expected 6"):
        check.take(Payload(1, wrong, 0))
