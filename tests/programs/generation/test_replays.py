"""The reference's judgement of tokens: each text once, the first departure, the first token that
rounding does not explain."""

from __future__ import annotations

from collections.abc import Sequence

from golow.check.rounding import FLOAT32
from golow.programs.generation.error_limit import ErrorLimit
from golow.programs.generation.replays import MadeTexts, Replays
from golow.worker.text_program import Draws, Moved, Tokens

LIMIT = ErrorLimit(0.1, FLOAT32)


class Judge:
    """A reference that wants each token to be the sum of all before it, modulo 10; every unit of
    distance is an error of 0.06. sensitivity: how far a rounding moves the error of tokens after
    the first; in draws before the one of this number, not at all."""

    def __init__(self, sensitivity: float = 0.0, first: int = 0) -> None:
        self.asked: list[tuple[int, ...]] = []
        self._sensitivity, self._first, self._moved = sensitivity, first, 0.0

    def move(self, moved: Moved | None) -> None:
        """Perturb it."""
        is_moved = moved is not None and moved.seed >= self._first
        self._moved = self._sensitivity * (-1) ** moved.seed if moved and is_moved else 0.0

    def replay(self, tokens: Tokens, prompt: int, draws: Draws) -> tuple[tuple[float, ...], ...]:
        """The errors of the tokens behind the prompt."""
        self.asked += [tuple(text) for text in tokens]
        return tuple(
            tuple(
                0.06 * abs(text[place] - sum(text[:place]) % 10) + self._moved * (place > prompt)
                for place in range(prompt, len(text))
            )
            for text in tokens
        )


def made(*tokens: Sequence[int]) -> MadeTexts:
    return MadeTexts([[1, 2]] * len(tokens), [], tuple(map(tuple, tokens)))


def judged(*texts: MadeTexts, sensitivity: float = 0.0, first: int = 0) -> tuple[Replays, Judge]:
    judge = Judge(sensitivity, first)
    replays = Replays(judge, LIMIT)  # type: ignore[arg-type]
    replays.learn(texts)
    return replays, judge


def test_a_text_that_several_levels_made_is_judged_once() -> None:
    replays, judge = judged(made([3, 6], [3, 6]), made([3, 6], [3, 7]))
    replays.learn([made([3, 6])])
    assert sorted(judge.asked) == [(1, 2, 3, 6), (1, 2, 3, 7)]


def test_equal_texts_do_not_depart() -> None:
    replays, _ = judged(made([3, 6, 2]))
    assert replays.departure(made([3, 6, 2]), made([3, 6, 2])) is None


def test_a_near_tie_explains_where_a_text_departs() -> None:
    own, base = made([3, 6, 2], [3, 7, 3]), made([3, 6, 2], [3, 6, 2])
    replays, _ = judged(own, base)
    found = replays.departure(own, base)
    assert found is not None
    assert (found.text, found.token, found.explained) == (1, 1, True)
    assert abs(found.error - 0.06) < 1e-12


def test_a_departure_that_rounding_does_not_explain_is_told() -> None:
    own, base = made([3, 8, 4]), made([3, 6, 2])
    replays, _ = judged(own, base)
    found = replays.departure(own, base)
    assert found is not None
    assert not found.explained
    assert "token 1 of text 0" in replays.refuted(own, "text")


def test_tokens_that_rounding_explains_are_not_refuted() -> None:
    text = made([4, 7, 4])
    replays, judge = judged(text)
    assert replays.refuted(text, "the text") == ""
    assert len(judge.asked) == 1


def test_a_token_at_which_roundings_move_much_is_explained_there_and_nowhere_else() -> None:
    sensitive, wrong = made([3, 9, 5]), made([6, 9, 8])
    assert "token 1" in judged(sensitive)[0].refuted(sensitive, "text")
    replays, judge = judged(sensitive, wrong, sensitivity=0.04)
    assert replays.refuted(sensitive, "text") == ""
    assert "token 0" in replays.refuted(wrong, "text")
    assert judge.asked.count((1, 2, 3, 9, 5)) == 4


def test_a_token_that_three_draws_do_not_explain_gets_further_ones() -> None:
    text, wrong = made([3, 9, 5]), made([3, 0, 6])
    replays, judge = judged(text, wrong, sensitivity=0.05, first=3)
    assert replays.refuted(text, "text") == ""  # 0.18 of 6 times 0.043
    assert "token 1" in replays.refuted(wrong, "text")  # 0.36
    assert judge.asked.count((1, 2, 3, 9, 5)) == judge.asked.count((1, 2, 3, 0, 6)) == 13


def test_no_rounding_explains_what_nothing_explains() -> None:
    text = made([3, 6])
    replays, _ = judged(text)
    replays._known = dict.fromkeys(replays._known, (0.0, float("nan")))
    assert replays.refuted(text, "the text")
