"""Assigns users to processes: each process gets an even share of each entry's users."""

from __future__ import annotations

from collections.abc import Iterator

from locust import User
from locust.runners import WorkerNode


class EvenDispatcher:
    """Replaces Locust's dispatcher, which spreads users by weight and over time.

    Worker `w` of `n`, in the order of ids, gets the users `w`, `w + n`, `w + 2 n`... of each entry.
    The number of users and the rate that Locust asks for have no effect.
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
        """Whether there are users to start."""
        return bool(self._waiting)

    def new_dispatch(
        self,
        target_user_count: int,
        spawn_rate: float,
        user_classes: list[type[User]] | None = None,
    ) -> None:
        """Start to dispatch all users at once."""
        self._waiting = [self._users]

    def add_worker(self, worker_node: WorkerNode) -> None:
        """Ignore a late process: all users are assigned."""

    def remove_worker(self, worker_node: WorkerNode) -> None:
        """Ignore the loss of a process. Its users are not reassigned, and the run fails."""
        self._users.pop(worker_node.id, None)

    def __iter__(self) -> Iterator[dict[str, dict[str, int]]]:
        return self

    def __next__(self) -> dict[str, dict[str, int]]:
        if not self._waiting:
            raise StopIteration
        return {worker: dict(users) for worker, users in self._waiting.pop(0).items()}
