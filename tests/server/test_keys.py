"""Files of API keys."""

import pytest

from aiayn.errors import ConfigError
from aiayn.server.keys import is_known, read_keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (b"one\ntwo", ["one", "two"]),
        (b"# of the team\n\n  a pass phrase \r\n\t# old\none#two\n", ["a pass phrase", "one#two"]),
        (b"\xef\xbb\xbfone\r\ntwo\r\n", ["one", "two"]),
        ("zwölf\u2028 elf\n".encode(), ["zwölf\u2028 elf"]),
    ],
)
def test_a_file_has_a_key_per_line_beside_blank_lines_and_comments(tmp_path, text, keys):
    (tmp_path / "keys").write_bytes(text)

    assert read_keys(tmp_path / "keys") == keys


@pytest.mark.parametrize("text", [b"", b" \n# none\n", b"\xef\xbb\xbf", b"stra\xdfe"])
def test_a_file_without_a_key_or_in_another_encoding_is_refused(tmp_path, text):
    (tmp_path / "keys").write_bytes(text)

    with pytest.raises(ConfigError, match=r"--api-key-file .*keys: (there is no key in it|cannot be read)"):
        read_keys(tmp_path / "keys")


def test_only_a_whole_key_is_known():
    keys = ["one", "zwölf"]

    assert [is_known(key, keys) for key in ("one", "zwölf", "on", "one ", "", "\ud800")] == [True, True, *[False] * 4]
