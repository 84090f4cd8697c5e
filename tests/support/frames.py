"""Golden frames as text: for each a readable title line, then its bytes in hexadecimal."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from raylog.wire.api import ApiKey

FRAMES = Path(__file__).parents[1] / "golden" / "frames"
_TITLE = re.compile(r"# (\w+) (request|response) v(\d+)")
_LINE_CHARACTERS = 96


@dataclass(frozen=True, order=True)
class Frame:
    """One frame without its length prefix."""

    api_key: ApiKey
    version: int
    direction: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.api_key.name}-{self.direction}-v{self.version}"


def write_frames(frames: list[Frame]) -> None:
    """Replace the files: one per API, frames by version, each request before its response."""
    for old in FRAMES.glob("*.txt"):
        old.unlink()
    FRAMES.mkdir(exist_ok=True)
    for key in sorted({frame.api_key for frame in frames}):
        blocks = [_block(frame) for frame in sorted(frames) if frame.api_key is key]
        (FRAMES / f"{key.name.lower()}.txt").write_text("\n".join(blocks))


def read_frames() -> list[Frame]:
    """Return all frames, in the order of the files."""
    return [frame for path in sorted(FRAMES.glob("*.txt")) for frame in _read(path)]


def _block(frame: Frame) -> str:
    name = f"{frame.api_key.name} {frame.direction} v{frame.version}"
    lines = textwrap.wrap(frame.data.hex(), _LINE_CHARACTERS)
    return "\n".join([f"# {name}, {len(frame.data)} bytes", *lines, ""])


def _read(path: Path) -> list[Frame]:
    frames = []
    for block in path.read_text().split("\n\n"):
        title, *lines = block.strip().split("\n")
        found = _TITLE.match(title)
        assert found is not None, f"{path.name}: {title}"
        data = bytes.fromhex("".join(lines))
        frames.append(Frame(ApiKey[found[1]], int(found[3]), found[2], data))
    return frames
