"""The shortest way to a link's address."""

import pytest

from raylog.actors.runtime.addresses import endpoint_of, instance_of, tcp_address, unix_address


def test_a_socket_of_this_machine_is_near() -> None:
    assert endpoint_of(unix_address("a")) == "\0a"
    assert endpoint_of("unix:a") == "\0a"
    assert endpoint_of(f"{unix_address('a')},{tcp_address('10.0.0.1', 4)}") == "\0a"


def test_another_machine_is_reached_by_tcp() -> None:
    assert endpoint_of("unix:a@other,tcp:10.0.0.1:4") == ("10.0.0.1", 4)
    assert endpoint_of("unix:a@other,tcp:fe80::1:4") == ("fe80::1", 4)


@pytest.mark.parametrize("address", ["unix:a@other", "inproc:a", ""])
def test_no_way_is_an_error_that_names_the_address(address: str) -> None:
    with pytest.raises(ValueError, match="a link address of"):
        endpoint_of(address)


def test_an_address_may_say_which_actor_process_is_meant() -> None:
    address = f"{unix_address('a')},{tcp_address('::1', 4, 'me')}"
    assert instance_of(address) == "me"
    assert endpoint_of("unix:a@other,tcp:me@::1:4") == ("::1", 4)
    assert instance_of(tcp_address("10.0.0.1", 4)) == instance_of(unix_address("a")) == ""
