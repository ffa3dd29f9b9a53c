"""Draws the masks: `python -m heedful.attention.masks`."""

import torch

from heedful.attention.masks import causal, picture, until

print("until([2, 4, 1]): each sentence of a batch sees its own words, not the padding")
print(picture(until(torch.tensor([2, 4, 1]))))
print("\ncausal(5): a word sees itself and those before it")
print(picture(causal(5)[0]))
