"""How often a support set with one example of each class shows which of two conflicting questions
is asked, to a reader who sees the content and the style of every picture.

In a task of contents no two classes share a content, and two may share a style by chance; in a task
of styles it is the other way round. A shared style shows that the question is about contents, and a
shared content that it is about styles. If nothing is shared, both questions are possible, and only
the chances of that speak for one of them. So these shares bound what any reading of one example a
class can tell, however good the features are.
"""

from math import prod
from pathlib import Path

from arml.tasks.conflict import QUESTIONS, ConflictOptions, QuestionEpisodes
from common import machine, write

WAYS = 5
PAIRS = tuple(dict.fromkeys(name for name, _, _ in QUESTIONS.values()))


def no_shared_style(styles: int, ways: int) -> float:
    """The probability that `ways` pictures have different styles, each drawn at random."""
    return prod((styles - i) / styles for i in range(ways))


def no_shared_content(contents: int, each: int, ways: int) -> float:
    """The probability that `ways` different pictures, of `each` for a content, differ in it."""
    return prod((contents - i) * each / (contents * each - i) for i in range(ways))


def shown(tasks: QuestionEpisodes) -> dict[str, float]:
    """For tasks of two questions about the same pictures: how often each question is shown, and how
    often the likelier question is the right one."""
    contents, styles = int(tasks.sources.classes[0]), len(tasks.styles)
    by_content, by_style = [
        1 - no_shared_style(styles, WAYS),
        1 - no_shared_content(contents, tasks.each, WAYS),
    ]
    likelier = (by_content + by_style + max(1 - by_content, 1 - by_style)) / 2
    names = dict(zip(tasks.families, (by_content, by_style), strict=True))
    return {**names, "the likelier question is right": likelier}


def main() -> None:
    """Compute the shares for the test tasks of each pair of families."""
    before, found = machine(), {}
    for pictures in PAIRS:
        families = tuple(name for name, (of, _, _) in QUESTIONS.items() if of == pictures)
        options = ConflictOptions(shots=1, ways=WAYS, families=families)
        test = options.build(Path("none")).test
        assert isinstance(test, QuestionEpisodes)
        found[pictures] = {name: round(share, 4) for name, share in shown(test).items()}
        print(pictures, found[pictures])
    write("one_shot", found, before)


if __name__ == "__main__":
    main()
