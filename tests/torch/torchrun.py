"""Runs torchrun of PyTorch 1.13, repaired for Python 3.11, and with keep-alives that newer ones can be told.

Python 3.11 no longer counts zero among the members of a flag, so that Std.from_str("0") returns None. The seconds
between keep-alives of a node, three of which make it lost, are fixed before PyTorch of 2025: KEEP_ALIVE_SECONDS sets them.
"""

import dataclasses
import datetime
import os

from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.run import main

whole = api.Std.from_str
api.Std.from_str = classmethod(lambda _, text: api.Std(int(text)) if text.isdigit() else whole(text))

seconds = int(os.environ.get("KEEP_ALIVE_SECONDS", "0"))
if seconds:
    Settings = dynamic_rendezvous.RendezvousSettings
    dynamic_rendezvous.RendezvousSettings = lambda *positional, **named: dataclasses.replace(
        Settings(*positional, **named), keep_alive_interval=datetime.timedelta(seconds=seconds))

if __name__ == "__main__":
    main()
