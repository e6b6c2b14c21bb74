"""Runs elastic.py with a GPT of another size: GPT2 in the environment has the constants of gpt.py."""

import json
import os

import gpt

vars(gpt).update(json.loads(os.environ["GPT2"]))

import elastic  # noqa: E402, F401: it trains
