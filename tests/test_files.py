import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnviz.errors import AttnvizError, RequestError
from attnviz.files import check_output, kind_at, whole_file
from tests.nobody import run_as_nobody


@pytest.fixture
def umask() -> Iterator[None]:
    old = os.umask(0o027)
    yield
    os.umask(old)


def write(path: Path, content: bytes = b"new") -> None:
    check_output(path)
    with whole_file(path) as stream:
        stream.write(content)


IMPORTS = """
from pathlib import Path
from attnviz.errors import AttnvizError
from attnviz.files import check_output, kind_at, whole_file
"""
ATTEMPTS = """
def write(path):
    check_output(path)
    with whole_file(path) as stream:
        stream.write(b"new")

for attempt in (check_output, kind_at, write):
    try:
        attempt(Path(sys.argv[1]))
    except AttnvizError as error:
        print(error.exit_code, error)
    else:
        print("allowed")
"""


def unprivileged(path: Path) -> list[str]:
    """What one who is not root is told of `path`: by check_output, by kind_at, and when it is written."""
    return run_as_nobody(IMPORTS, ATTEMPTS, str(path))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# what is there


def test_what_is_at_a_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    kinds = {name: kind_at(tmp_path / name) for name in ("file", "link", "dangling", "pipe", "none", "file/x", ".")}
    assert kinds == {
        "file": "file", "link": "file", "dangling": "nothing", "pipe": "stream", "none": "nothing", "file/x": "nothing",
        ".": "folder",
    }  # fmt: skip
    assert kind_at(Path(os.devnull)) == "stream"
    assert kind_at(tmp_path / ("x" * 300)) == kind_at(Path("a\0b")) == "nothing"


def test_what_cannot_be_looked_at_is_said_to(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(AttnvizError, match="loop cannot be looked at: ") as error:
        kind_at(tmp_path / "loop")
    assert error.value.exit_code == 3


# whole files


def test_a_new_file_has_what_was_written_and_the_rights_of_any_new_file(tmp_path: Path, umask: None) -> None:
    write(tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == b"new"
    assert mode(tmp_path / "a.json") == 0o640
    assert names_in(tmp_path) == ["a.json"]


@pytest.mark.parametrize("rights", [0o600, 0o664, 0o755])
def test_a_file_that_is_replaced_keeps_its_rights(tmp_path: Path, umask: None, rights: int) -> None:
    (tmp_path / "a.json").write_text("old and longer")
    (tmp_path / "a.json").chmod(rights)
    write(tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == b"new"
    assert mode(tmp_path / "a.json") == rights


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, AttnvizError, BrokenPipeError])
@pytest.mark.parametrize("old", [None, b"old"])
def test_a_writer_that_fails_leaves_everything_as_it_was(
    tmp_path: Path, error: type[BaseException], old: bytes | None
) -> None:
    path = tmp_path / "a.json"
    if old is not None:
        path.write_bytes(old)
    with pytest.raises(error), whole_file(path) as stream:
        stream.write(b"half")
        raise error
    assert names_in(tmp_path) == ([] if old is None else ["a.json"])
    assert old is None or path.read_bytes() == old


def test_a_disk_that_is_full_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with (
        pytest.raises(AttnvizError, match=r"output .*a\.json cannot be written: No space") as error,
        whole_file(path) as stream,
    ):
        raise OSError(28, "No space left on device", stream.name)
    assert error.value.exit_code == 3
    assert names_in(tmp_path) == ["a.json"]
    assert path.read_bytes() == b"old"


def test_readers_see_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with whole_file(path) as stream:
        stream.write(b"x" * 100_000)
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"x" * 100_000


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.json", tmp_path / "link.json"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    write(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert mode(target) == 0o640
    assert names_in(tmp_path) == ["link.json", "there"]
    assert names_in(tmp_path / "there") == ["a.json"]


def test_a_link_to_nothing_makes_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("a.json")
    write(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "a.json").read_bytes() == b"new"


def test_a_name_of_any_length_that_fits_is_written(tmp_path: Path) -> None:
    for name in ("x" * 250 + ".json", "字" * 83 + ".txt"):
        write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"new"


def test_a_relative_path_is_of_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.json"))
    assert (tmp_path / "a.json").read_bytes() == b"new"


# pipes and devices


def test_a_pipe_is_written_straight(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe, b"x" * 200_000)
    reader.join(timeout=20)
    assert read == [b"x" * 200_000]
    assert names_in(tmp_path) == ["pipe"]
    assert kind_at(pipe) == "stream"


def test_a_device_is_written_straight() -> None:
    assert unprivileged(Path(os.devnull)) == ["allowed", "allowed", "allowed"]
    assert kind_at(Path(os.devnull)) == "stream"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_that_is_full_is_said_to_be() -> None:
    message = "3 output /dev/full cannot be written: No space left on device"
    assert unprivileged(Path("/dev/full")) == ["allowed", "allowed", message]


# what is refused


def test_a_folder_is_refused_as_output(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="is a folder: name a file in it") as error:
        check_output(tmp_path)
    assert error.value.exit_code == 2
    with pytest.raises(AttnvizError, match="cannot be written: Is a directory"), whole_file(tmp_path):
        pass
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("name", ["no/a.json", "no/such/a.json", "file/a.json"])
def test_a_folder_that_does_not_exist_is_named_and_not_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    path = tmp_path / name
    with pytest.raises(RequestError, match=f"folder {path.parent} does not exist; make it first") as error:
        check_output(path)
    assert error.value.exit_code == 2
    assert names_in(tmp_path) == ["file"]


def test_a_name_that_is_too_long_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match="cannot be written: File name too long"):
        write(tmp_path / ("x" * 300 + ".json"))
    assert names_in(tmp_path) == []


def test_a_link_that_goes_in_circles_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("b.json")
    (tmp_path / "b.json").symlink_to("a.json")
    for attempt in (check_output, write):
        with pytest.raises(AttnvizError, match="cannot be looked at"):
            attempt(tmp_path / "a.json")
    assert names_in(tmp_path) == ["a.json", "b.json"]


def test_a_link_into_a_folder_that_does_not_exist_is_said_to_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("no/a.json")
    with pytest.raises(AttnvizError, match="cannot be written: No such file or directory"):
        write(tmp_path / "a.json")


def test_a_folder_that_goes_away_meanwhile_is_said_to(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    check_output(folder / "a.json")
    folder.rmdir()
    with (
        pytest.raises(AttnvizError, match="cannot be written: No such file or directory"),
        whole_file(folder / "a.json"),
    ):
        pass


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anyone may enter, down from the root."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_folder_that_may_not_be_written_to_is_said_to_be(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    lines = unprivileged(open_folder / "a.json")
    open_folder.chmod(0o755)
    message = f"3 output {open_folder / 'a.json'} cannot be written: no permission to write to {open_folder}"
    assert lines == [message, "allowed", message]


def test_a_file_that_may_not_be_written_is_not_replaced(open_folder: Path) -> None:
    path = open_folder / "a.json"
    path.write_bytes(b"old")
    path.chmod(0o444)
    open_folder.chmod(0o777)
    lines = unprivileged(path)
    message = f"3 output {path} cannot be written: no permission to write to {path}"
    assert lines == [message, "allowed", message]
    assert path.read_bytes() == b"old"
    assert names_in(open_folder) == ["a.json"]


def test_a_folder_that_may_not_be_entered_is_said_to_be(open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir()
    closed.chmod(0o000)
    lines = unprivileged(closed / "a.json")
    closed.chmod(0o755)
    assert all(line == f"3 {closed / 'a.json'} cannot be looked at: Permission denied" for line in lines)
    assert len(lines) == 3
