"""Checks of the recipe's own arithmetic: python -m unittest discover -s training (needs torch and transformers)."""

import unittest

import torch
from common import BLOCK, WINDOW, learning_rate, random_rows
from drafter import block_mask


class Recipe(unittest.TestCase):
    def test_learning_rate_warms_up_and_ends_at_the_floor(self) -> None:
        self.assertAlmostEqual(learning_rate(0, 1000, 1.0), 0.01)
        self.assertAlmostEqual(learning_rate(99, 1000, 1.0), 1.0)
        self.assertAlmostEqual(learning_rate(1000, 1000, 1.0), 0.03)

    def test_rows_are_stretches_of_the_ids(self) -> None:
        rows = random_rows(torch.arange(1000), 5, 20, torch.Generator().manual_seed(1))
        self.assertEqual(rows.shape, (5, 21))
        self.assertTrue(torch.equal(rows - rows[:, :1], torch.arange(21).expand(5, -1)))

    def test_a_block_sees_its_window_of_context_and_itself(self) -> None:
        length, anchor = 2 * WINDOW, WINDOW + 40
        mask = block_mask(torch.tensor([[3, anchor]]), length)[0, 0]
        visible = mask == 0
        self.assertEqual(mask.shape, (2 * BLOCK, length + 2 * BLOCK))
        for j in range(BLOCK):
            seen = visible[BLOCK + j].nonzero()[:, 0].tolist()
            oldest = anchor + j - WINDOW
            own = range(length + BLOCK, length + 2 * BLOCK)
            self.assertEqual(seen, [*range(oldest, anchor), *own])
        self.assertEqual(visible[0].nonzero()[:, 0].tolist(), [0, 1, 2, *range(length, length + BLOCK)])


if __name__ == "__main__":
    unittest.main()
