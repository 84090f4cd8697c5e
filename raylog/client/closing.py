"""Clients that close themselves at the end of their `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import NoReturn, Self


class OfOneProcess:
    """A client, which cannot be pickled: its connections and threads belong to one process."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} cannot be pickled or copied: make one in each process"
        )


class Closing(ABC):
    """Closes itself at the end of a `with` block, also after an exception."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing(ABC):
    """Closes itself at the end of an `async with` block, also after an exception."""

    @abstractmethod
    async def close(self) -> None:
        """Release all resources."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
