"""Which users run in which process: each has its even share of each entry's users."""

from __future__ import annotations

from collections.abc import Iterator

from locust import User
from locust.runners import WorkerNode


class EvenDispatcher:
    """Stands in for Locust's dispatcher, which spreads users by weight, and over time.

    Worker `w` of `n`, in the order of their ids, gets those of an entry's users that are numbered
    `w`, `w + n`, `w + 2 n`... The number of users and the rate that Locust asks for do not matter.
    """

    def __init__(self, worker_nodes: list[WorkerNode], user_classes: list[type[User]]) -> None:
        nodes = sorted(worker_nodes, key=lambda node: node.id)
        self._users = {
            node.id: {
                one.__name__: len(range(index, one.fixed_count, len(nodes))) for one in user_classes
            }
            for index, node in enumerate(nodes)
        }
        self._waiting: list[dict[str, dict[str, int]]] = []

    @property
    def dispatch_in_progress(self) -> bool:
        """Whether users are still to be started."""
        return bool(self._waiting)

    def new_dispatch(
        self,
        target_user_count: int,
        spawn_rate: float,
        user_classes: list[type[User]] | None = None,
    ) -> None:
        """Begin to hand out users: all at once."""
        self._waiting = [self._users]

    def add_worker(self, worker_node: WorkerNode) -> None:
        """A process that comes later gets no users: the shares are given."""

    def remove_worker(self, worker_node: WorkerNode) -> None:
        """A process is lost; its users are not given to others, and the run fails."""
        self._users.pop(worker_node.id, None)

    def __iter__(self) -> Iterator[dict[str, dict[str, int]]]:
        return self

    def __next__(self) -> dict[str, dict[str, int]]:
        if not self._waiting:
            raise StopIteration
        return {worker: dict(users) for worker, users in self._waiting.pop(0).items()}
