"""How workers reach each other: JSON lines over TCP, to a peer's address. The workers alone decide what they say there.

A worker that connects says in a line who it is. After `?` the other end sends back all that comes, so that a link can be measured. The end
of a worker's connection is how its death is noticed at once.
"""

import json
import socket
import threading
import time

MEASURE_SECONDS, MEASURE_BYTES = 1, 1 << 20


class Peers:
    """The worker's own address, and a connection to each of its peers.

    `hear(node, message)` is called on another thread with each message, and with None where the connection ended that
    was the last of that node.
    """

    def __init__(self, node, host, hear):
        self._node, self._hear = node, hear
        self._sockets, self._speakers, self._lock = {}, {}, threading.Lock()
        self._listener = socket.create_server((host, 0))
        self.address = "%s:%d" % self._listener.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def meet(self, addresses):
        """Connects to the peers, nodes and their addresses, and to nobody else. A peer that it cannot reach is told as ended."""
        for node in [node for node, (address, _) in self._sockets.items() if addresses.get(node) != address]:
            self.drop(node)
        for node, address in addresses.items():
            if node not in self._sockets:
                try:
                    connection = _dial(address)
                    connection.sendall(self._node.encode() + b"\n")
                    self._sockets[node] = (address, connection)
                except OSError:
                    self._hear(node, None)

    def send(self, node, message):
        """Sends a message to a peer that can be reached. The end of any other was told, or is told now."""
        if node in self._sockets:
            try:
                self._sockets[node][1].sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                self.drop(node)
                self._hear(node, None)

    def drop(self, node):
        """Ends the connection to a peer, who notices it."""
        if node in self._sockets:
            self._sockets.pop(node)[1].close()

    def cut(self):
        """Ends all connections, those of others included, as a fault of the network does."""
        for node in list(self._sockets):
            self.drop(node)
        with self._lock:
            for connection in self._speakers.values():
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        while True:
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            node = ""
            try:
                node = lines.readline().decode().strip()
                if node == "?":
                    return _echo(connection, lines)
                with self._lock:
                    self._speakers[node] = connection
                for line in lines:
                    self._hear(node, json.loads(line))
            except (OSError, ValueError):
                pass  # it ended, or what it said is no JSON: both are its end
            with self._lock:
                last = self._speakers.get(node) is connection
                if last:
                    del self._speakers[node]
            if last:
                self._hear(node, None)


def measure_links(node, opening):
    """Measures the links of a node that an opening asks for, as far as time allows."""
    measured, began = [], time.monotonic()
    addresses = {member["node"]: member["address"] for member in opening["members"]}
    for pair in opening["connect"]:
        if node in pair.values() and time.monotonic() < began + MEASURE_SECONDS:
            peer = pair["a"] if pair["b"] == node else pair["b"]
            try:
                measured.append(measure(node, peer, addresses[peer], MEASURE_BYTES))
            except OSError:
                pass  # the monitor asks for it again, and hears the error
    return measured


def measure(node, peer, address, size):
    """Returns how good a link is, by an echo of so many bytes. Raises OSError, after two seconds at most."""
    latest = time.monotonic() + 1
    with _dial(address, 0.5) as connection:
        connection.sendall(b"?\n")
        seconds = []
        for count in (1, max(size, 1)):
            began = time.monotonic()
            threading.Thread(target=connection.sendall, args=(bytes(count),), daemon=True).start()
            while count > 0:
                got = len(connection.recv(1 << 16))
                if not got or time.monotonic() > latest:
                    raise ConnectionError(f"{address} does not send back what it gets")
                count -= got
            seconds.append(time.monotonic() - began)
        return {"from": node, "to": peer, "roundTripSeconds": seconds[0], "bandwidthBytesPerSecond": size / seconds[1]}


def _dial(address, seconds=1):
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _echo(connection, lines):
    while data := lines.read1(1 << 16):
        connection.sendall(data)
