"""Decides whether the processes of a fleet may take over their files: all of them must have read the same version, or
none takes it over."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The file of a process, as it was last read."""

    # Empty if it cannot be taken over.
    version: str = ""
    # Why not.
    mistakes: tuple[str, ...] = ()


def find_obstacles(staged: Mapping[str, StagedFile]) -> list[str]:
    """Returns why the files cannot be taken over, each line with the name of a process; none if they can."""
    obstacles = [f"{name}: {mistake}" for name, file in staged.items() for mistake in file.mistakes]
    versions = {name: file.version for name, file in staged.items() if not file.mistakes}
    if len(set(versions.values())) > 1:
        obstacles += [f"{name}: its file has version {version}" for name, version in versions.items()]
    return obstacles
