"""The reference's judgement of tokens: each text once, the first departure, the first token that
rounding does not explain."""

from __future__ import annotations

from collections.abc import Sequence

from golow.programs.generation.replays import MadeTexts, Replays, departure, refuted
from golow.worker.text_program import Draws, Tokens

LIMIT = 0.1


class Judge:
    """A reference that wants each token to be the sum of all before it, modulo 10; every unit of
    distance is an error of 0.06."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def replay(self, tokens: Tokens, prompt: int, draws: Draws) -> tuple[tuple[float, ...], ...]:
        """The errors of the tokens behind the prompt."""
        self.asked += [tuple(text) for text in tokens]
        return tuple(
            tuple(
                0.06 * abs(text[place] - sum(text[:place]) % 10)
                for place in range(prompt, len(text))
            )
            for text in tokens
        )


def made(*tokens: Sequence[int]) -> MadeTexts:
    return MadeTexts([[1, 2]] * len(tokens), [], tuple(map(tuple, tokens)))


def judged(*texts: MadeTexts) -> tuple[Replays, Judge]:
    judge = Judge()
    replays = Replays(judge)  # type: ignore[arg-type]
    replays.learn(texts)
    return replays, judge


def test_a_text_that_several_levels_made_is_judged_once() -> None:
    replays, judge = judged(made([3, 6], [3, 6]), made([3, 6], [3, 7]))
    replays.learn([made([3, 6])])
    assert sorted(judge.asked) == [(1, 2, 3, 6), (1, 2, 3, 7)]


def test_equal_texts_do_not_depart() -> None:
    replays, _ = judged(made([3, 6, 2]))
    assert departure(made([3, 6, 2]), made([3, 6, 2]), replays, LIMIT) is None


def test_a_near_tie_explains_where_a_text_departs() -> None:
    own, base = made([3, 6, 2], [3, 7, 3]), made([3, 6, 2], [3, 6, 2])
    replays, _ = judged(own, base)
    found = departure(own, base, replays, LIMIT)
    assert found is not None
    assert (found.text, found.token, found.explained) == (1, 1, True)
    assert abs(found.error - 0.06) < 1e-12


def test_a_departure_that_rounding_does_not_explain_is_told() -> None:
    own, base = made([3, 8, 4]), made([3, 6, 2])
    replays, _ = judged(own, base)
    found = departure(own, base, replays, LIMIT)
    assert found is not None
    assert not found.explained
    assert "token 1 of text 0" in refuted(replays.errors(own), LIMIT, "text")


def test_tokens_that_rounding_explains_are_not_refuted() -> None:
    replays, _ = judged(made([4, 7, 4]))
    assert refuted(replays.errors(made([4, 7, 4])), LIMIT, "the text") == ""
    assert refuted([[float("nan")]], LIMIT, "the text")
