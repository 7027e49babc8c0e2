"""A target and a draft as the enumerators ask them: checked, remembered, on one vocabulary."""

from typing import NamedTuple

from rheocheck.errors import (
    InputError,
    ProgramError,
    RheocheckError,
    shown_error,
    shown_path,
    shown_with_type,
)
from rheocheck.reference.laws import Draft, Law, LawLike, Path, Target, as_draft, as_law


class Models:
    """A target and a draft, checked once a path and remembered.

    Both enumerators read laws through this class: it is all they share.
    """

    def __init__(
        self,
        target: Target,
        draft: Draft,
        history: Path = (),
        vocabulary: "Vocabulary | None" = None,
    ) -> None:
        """Remember two callables; nothing is asked yet.

        Args:
          target: path -> [vocab] law.
          draft: path -> [vocab] law, or a 2-tuple of laws (ranking, tempered draft).
          history: Tokens emitted before; it comes before every path the callables are asked at.
          vocabulary: Shared by the rounds of a sequence; None starts one.

        Raises:
          InputError: Either is not callable.
        """
        check_callable(target, "target")
        check_callable(draft, "draft")
        self._target = target
        self._draft = draft
        self._history = history
        self._target_laws: dict[Path, Law] = {}
        self._draft_laws: dict[Path, tuple[Law, Law]] = {}
        self._vocabulary = Vocabulary() if vocabulary is None else vocabulary

    @property
    def vocab(self) -> int:
        """Number of tokens: the length of the target law at the root."""
        size = self._vocabulary.size
        return len(self.target(())) if size is None else size

    def target(self, path: Path) -> Law:
        """[vocab] target law after `path`, which may have target probability 0."""
        law = self._target_laws.get(path)
        if law is None:
            law = self._vocabulary.target_law(self._target, self._history + path)
            self._target_laws[path] = law
        return law

    def draft(self, path: Path) -> tuple[Law, Law]:
        """[vocab] ranking law and [vocab] tempered draft after `path`."""
        laws = self._draft_laws.get(path)
        if laws is None:
            assert self.vocab  # the target is asked first: its length is the vocabulary
            laws = self._vocabulary.draft_laws(self._draft, self._history + path)
            self._draft_laws[path] = laws
        return laws


class Vocabulary:
    """The length that all laws of a run share: that of the first one asked for.

    Attributes:
      size: Number of tokens; None before the first law.
      like: Why a law must have that many, as errors say it.
    """

    __slots__ = ("like", "size")

    def __init__(self) -> None:
        """No law has been seen."""
        self.size: int | None = None
        self.like: object = ""

    def target_law(self, target: Target, path: Path) -> Law:
        """Ask a target and check its answer.

        Args:
          target: path -> [vocab] law.
          path: The whole path from where `target` starts.

        Raises:
          LawError: The answer is no law, or of another length than the first one.
          ProgramError: The target raised; its error is chained.
        """
        name = _Asked("target", path)
        law = as_law(_ask(target, name), self.size, name, self.like)
        if self.size is None:
            self.size = len(law)
            self.like = _As(name)
        return law

    def draft_laws(self, draft: Draft, path: Path) -> tuple[Law, Law]:
        """Ask a draft and check its answer; a target has been asked before.

        Raises:
          LawError: As `target_law`.
          ProgramError: As `target_law`.
        """
        name = _Asked("draft", path)
        return as_draft(_ask(draft, name), self.size, name, self.like)


def check_callable(value: object, name: str) -> None:
    """Refuse a model that cannot be asked for laws.

    Raises:
      InputError: It is not callable.
    """
    if not callable(value):
        raise InputError(
            f"{name} is {shown_with_type(value)}; required: a callable that takes a path (a tuple "
            f"of tokens) and returns the law of the next token"
        )


class _Asked(NamedTuple):
    """A model at a path, as errors name it."""

    model: str
    path: Path

    def __str__(self) -> str:
        return f"{self.model}({shown_path(self.path)})"


class _As(NamedTuple):
    first: _Asked

    def __str__(self) -> str:
        return f"as {self.first} has"


def _ask(model: Target | Draft, name: _Asked) -> LawLike:
    try:
        return model(name.path)
    except RheocheckError:
        raise
    except (Exception, SystemExit) as error:
        raise ProgramError(f"{name} raised {shown_error(error)}") from error
