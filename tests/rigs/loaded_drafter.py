"""A loaded drafter whose pages and logits a test can look at."""

from dataclasses import replace

import torch

from dflash.drafters.base import ContextRows, DraftRow
from dflash.drafters.names import LOGITS

PAGES = (5, 0, 7, 2)


class Loaded:
    """A drafter with its pages, and the last logits of its block."""

    def __init__(self, drafter, pages):
        self.pages = pages
        self.logits = torch.empty(0)
        self.num_passes = 0
        self.drafter = replace(drafter, block=self)
        self._block = drafter.block

    def run(self, batch):
        outputs = self._block.run(batch)
        self.logits = outputs[LOGITS].clone()
        self.num_passes += 1
        return outputs

    def observe(self, features, start, rows, pages=PAGES):
        self.drafter.observe(features, [ContextRows(start, pages, rows)])

    def logits_at(self, position, anchor=9, num_drafts=7):
        self.drafter.propose([row(position, anchor, num_drafts)])
        return self.logits

    def context(self, position):
        """Keys and values of the first tokens of the sequence in PAGES."""
        tables = torch.tensor(PAGES)
        keys = self.pages.keys[:, tables].permute(0, 2, 3, 1, 4).flatten(3)[..., :position]
        values = self.pages.values[:, tables].transpose(1, 2).flatten(2, 3)[:, :, :position]
        return keys.clone(), values.clone()


def row(position, anchor=9, num_drafts=7, temperature=0.0, pages=PAGES) -> DraftRow:
    return DraftRow(anchor, position, pages, num_drafts, temperature, 3, 0)
