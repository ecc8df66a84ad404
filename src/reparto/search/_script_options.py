"""How a setting of a candidate becomes an argument of the script, by how its name is spelled.

    in space.toml     lr = {low = 1e-4, high = 1, log = true}      drawn: 0.01
    "lr"              --lr 0.01          also "batch-size", "batch_size", "--lr"
    "-b"              -b 64
    "momentum="       momentum=0.9       scripts that take their options so
    "$LR"             the variable LR of the environment

True is the option alone, False and None leave it out; several numbers are several words. An option
that is among the script's own arguments is replaced where it stands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reparto.errors import UsageError
from reparto.spec import Settings

_NAME = re.compile(r"\$[A-Za-z_]\w*|-{0,2}[A-Za-z0-9][\w.+/@:-]*=?|[+~]{1,2}[A-Za-z][\w./@-]*=")


@dataclass(frozen=True)
class Words:
    """What a candidate's settings are for the script.

    Attributes:
        args: Its arguments.
        env: What is added to its environment.
    """

    args: tuple[str, ...]
    env: Mapping[str, str]

    def command(self, script: str, before: Sequence[str] = ()) -> str:
        """As people type it, after ``reparto run`` with the words `before`."""
        env = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        # Without `--` an option of the script that looks like one of ours could be taken for it.
        return " ".join([*env, shlex.join(["reparto", "run", *before, script, *self.args])])


def words_of(settings: Settings, own: Sequence[str] = ()) -> Words:
    """Spell settings as the script reads them.

    Args:
        settings: Of a candidate.
        own: Arguments that the script has in any case.

    Example:
        >>> words_of({"lr": 0.01, "b=": 64, "amp": True}, ("data",)).args
        ('data', '--lr', '0.01', 'b=64', '--amp')
    """
    args, env = list(own), dict[str, str]()
    for name, value in settings.items():
        if name.startswith("$"):
            if value is not None:
                env[name[1:]] = _joined(value, {True: "1", False: "0"})
        elif name.endswith("="):
            made = [] if value is None else [f"{name}{_bracketed(value)}"]
            args = _placed(args, made, [at for at, it in enumerate(args) if it.startswith(name)])
        else:
            option = option_of(name)
            args = _placed(args, _spelled(option, value), _places(args, option, value))
    return Words(tuple(args), env)


def option_of(name: str) -> str:
    """The option that a name without dashes stands for.

    Example:
        >>> option_of("batch-size"), option_of("-b")
        ('--batch-size', '-b')
    """
    return name if name.startswith("-") else f"--{name}"


def check_name(where: str, name: str) -> None:
    """Refuse what can be no option's name.

    Raises:
        UsageError: Says where it stands.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{where}: {name!r} is no name of an option",
            remedy='lr is for --lr 0.1, "-b" for -b 8, "lr=" for lr=0.1, "$LR" for a variable',
        )


def _spelled(option: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    words = [_plain(one) for one in value] if isinstance(value, tuple | list) else [_plain(value)]
    if len(words) == 1 and words[0].startswith("-"):  # would be taken for another option
        return [f"{option}={words[0]}"] if option.startswith("--") else [f"{option}{words[0]}"]
    return [option, *words]


def _places(args: Sequence[str], option: str, value: Any) -> list[int]:
    """Which of the arguments are that option and its values, if it takes such a value."""
    most = 0 if isinstance(value, bool) else len(args) if isinstance(value, tuple | list) else 1
    found, left = list[int](), 0
    for index, word in enumerate(args):
        if word == option or word.startswith(f"{option}="):
            found.append(index)
            left = most if word == option else 0
        elif left and not _is_option(word):
            found.append(index)
            left -= 1
        else:
            left = 0
    return found


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-[\d.].*", word)


def _placed(args: Sequence[str], made: Sequence[str], places: Sequence[int]) -> list[str]:
    """The arguments with those at `places` replaced; added at the end if there are none."""
    if not places:
        return [*args, *made]
    kept = [word for index, word in enumerate(args) if index not in places]
    first = places[0]
    return [*kept[:first], *made, *kept[first:]]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _bracketed(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{','.join(map(_plain, value))}]"
    return _plain(value)


def _joined(value: Any, booleans: Mapping[bool, str]) -> str:
    if isinstance(value, bool):
        return booleans[value]
    if isinstance(value, tuple | list):
        return " ".join(map(_plain, value))
    return _plain(value)
