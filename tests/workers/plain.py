"""Counts with other processes, as torchrun would start them, and knows nothing of Reknit: plain.py DIRECTORY.

The count is in DIRECTORY/checkpoint, and ends once there is a DIRECTORY/enough.
"""

import json
import os
import socket
import sys
import time

DIRECTORY = sys.argv[1]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def meet():
    """Connects rank 0 with each of the others."""
    if RANK == 0:
        with socket.create_server(MASTER) as server:
            return [server.accept()[0].makefile("rw") for _ in range(WORLD - 1)]
    while True:
        try:
            return [socket.create_connection(MASTER).makefile("rw")]
        except ConnectionRefusedError:
            time.sleep(0.02)


def exchange(peers, number):
    """Returns the number of rank 0, once all have come here."""
    if RANK > 0:
        peers[0].write("here\n")
        peers[0].flush()
        return int(peers[0].readline())
    for peer in peers:
        if peer.readline() != "here\n":
            raise ConnectionError("a process is gone")
    for peer in peers:
        peer.write(f"{number}\n")
        peer.flush()
    return number


def say(**what):
    print(json.dumps(what) + "\n", end="", flush=True)  # in one piece: who is killed leaves no half of a line


def main():
    say(pid=os.getpid())
    peers = meet()
    checkpoint = os.path.join(DIRECTORY, "checkpoint")
    done = 0
    if os.path.exists(checkpoint):
        with open(checkpoint) as file:
            done = int(file.read())
    done = exchange(peers, done)
    enough = False
    while not enough:
        time.sleep(0.02)
        enough = exchange(peers, int(os.path.exists(os.path.join(DIRECTORY, "enough"))))
        done += 1
        if RANK == 0:
            with open(checkpoint + ".new", "w") as file:
                file.write(str(done))
            os.replace(checkpoint + ".new", checkpoint)
        say(pid=os.getpid(), done=done, rank=RANK, world=WORLD)


main()
