"""The README of the PyTorch example shows the difference between its two scripts as it is."""

import difflib
import pathlib
import unittest

EXAMPLE = pathlib.Path(__file__).parent.parent / "examples" / "pytorch"
MOST_LINES = 11  # that elasticity may cost: eight to train, three to know who saves the model


def difference():
    """Returns the lines of the difference, without its headlines."""
    scripts = [(EXAMPLE / name).read_text().splitlines() for name in ("ddp.py", "elastic.py")]
    lines = difflib.unified_diff(*scripts, n=1, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


class Readme(unittest.TestCase):
    def test_the_difference_in_the_readme_is_the_real_one(self):
        shown = (EXAMPLE / "README.md").read_text().split("```diff\n")[1].split("```")[0]
        self.assertEqual("\n".join(difference()), shown.rstrip("\n"))

    def test_elasticity_costs_few_lines(self):
        self.assertLessEqual(sum(line.startswith("+") for line in difference()), MOST_LINES)


if __name__ == "__main__":
    unittest.main()
