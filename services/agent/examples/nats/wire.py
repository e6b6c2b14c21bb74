"""A small client of NATS, JetStream and its object store: one file, standard library only.

It knows one server, no TLS and no authentication. It does not connect anew: a connection that ends is told to `ended`.
"""

import base64
import hashlib
import itertools
import json
import queue
import socket
import threading
import time
import urllib.parse
import uuid

CHUNK = 128 << 10  # bytes of an object that travel in one message
PAUSE_SECONDS = 0.5  # before what was not stored is sent again


class Error(Exception):
    """The server is away, does not answer, or has no room."""


class Refused(Exception):
    """The server answers that it has no such thing."""


class Message:
    """Data that came on a subject. Headers are text, `status` is that of the server's own answers (404: not there)."""

    def __init__(self, subject, reply, head, data):
        self.subject, self.reply, self.data = subject, reply, data
        first, *lines = head.decode().strip().split("\r\n")
        self.status = first[len("NATS/1.0"):].strip()[:3]
        self.headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


class Connection:
    """A connection to a server, which `with` closes. Raises Error where there is none.

    `ended(connection, why)` is called on its reader's thread when it breaks.
    """

    def __init__(self, url, ended):
        place = urllib.parse.urlsplit(url if "//" in url else "nats://" + url)
        try:
            self._socket = socket.create_connection((place.hostname, place.port or 4222), timeout=5)
        except OSError as error:
            raise Error(f"{url}: {error}") from None
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")
        self._reader.readline()  # INFO
        self._sending = threading.Lock()
        self._hearers, self._answers, self._closed = {}, {}, False
        self._numbers = itertools.count(1)
        self._inbox = "_INBOX." + uuid.uuid4().hex
        self._send(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"python"}\r\n')
        threading.Thread(target=self._read, args=(ended,), daemon=True).start()
        self.subscribe(self._inbox + ".*", self._answered)

    def subscribe(self, subject, hear):
        """Calls hear with each message, on the reader's thread: hear must not ask anything itself. Returns a number with
        which that ends."""
        number = next(self._numbers)
        self._hearers[number] = hear
        self._send(f"SUB {subject} {number}\r\n".encode())
        return number

    def unsubscribe(self, number):
        self._hearers.pop(number, None)
        self._send(f"UNSUB {number}\r\n".encode())

    def publish(self, subject, data, reply="", headers=None):
        head = b""
        if headers:
            head = ("NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n").encode()
        sizes = f"{len(head)} {len(head) + len(data)}" if head else str(len(data))
        self._send(f"{'HPUB' if head else 'PUB'} {subject} {reply} {sizes}\r\n".encode() + head + data + b"\r\n")

    def request(self, subject, data=b"", headers=None, timeout=5):
        """Returns the answer. Raises Error where none comes in time, or nobody is there to give one."""
        reply, answers = f"{self._inbox}.{uuid.uuid4().hex}", queue.SimpleQueue()
        self._answers[reply] = answers
        try:
            self.publish(subject, data, reply, headers)
            answer = answers.get(timeout=timeout)
        except queue.Empty:
            raise Error(f"{subject}: no answer within {timeout} s") from None
        finally:
            del self._answers[reply]
        if answer is None:
            raise Error(f"{subject}: the connection ended")
        if answer.status == "503":
            raise Error(f"{subject}: nobody answers there")
        return answer

    def store(self, subject, data, headers):
        """Puts a message into the stream of its subject, and returns its number when it is there. Raises Error where the
        stream does not answer three times, or takes nothing: a header Nats-Msg-Id makes a repeat harmless. Raises Refused
        where the first attempt is a repeat already: the stream has another message with that header, and drops this one."""
        for attempt in range(3):
            try:
                answer = json.loads(self.request(subject, data, headers).data)
                if "error" not in answer:
                    if attempt == 0 and answer.get("duplicate"):
                        raise Refused(f"{subject}: message {answer['seq']} has the same Nats-Msg-Id")
                    return answer["seq"]
                raise Error(f"{subject}: {answer['error']['description']}")
            except Error:
                if attempt == 2:
                    raise
            time.sleep(PAUSE_SECONDS)

    def last(self, stream, subject):
        """Returns the data of the last message that a stream has on a subject, as its leader knows it; None for none."""
        answer = json.loads(self.request(f"$JS.API.STREAM.MSG.GET.{stream}", json.dumps({"last_by_subj": subject}).encode()).data)
        return base64.b64decode(answer["message"]["data"]) if "message" in answer else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closed = True
        self._socket.close()
        for answers in list(self._answers.values()):
            answers.put(None)

    def _send(self, data):
        try:
            with self._sending:
                self._socket.sendall(data)
        except OSError as error:
            raise Error(str(error)) from None

    def _answered(self, message):
        answers = self._answers.get(message.subject)
        if answers is not None:
            answers.put(message)

    def _read(self, ended):
        try:
            while True:
                words = self._reader.readline().decode().split()
                if not words:
                    raise ConnectionError("the server closed the connection")
                if words[0] in ("MSG", "HMSG"):
                    self._deliver(words)
                elif words[0] == "PING":
                    self._send(b"PONG\r\n")
                elif words[0] == "-ERR":
                    raise ConnectionError(" ".join(words))
        except (OSError, ValueError, Error) as error:
            if not self._closed:
                self.__exit__()
                ended(self, str(error))

    def _deliver(self, words):
        """Reads what follows MSG subject sid [reply] size, or HMSG subject sid [reply] head-size size."""
        size = int(words[-1])
        head = int(words[-2]) if words[0] == "HMSG" else 0
        reply = words[3] if len(words) == (6 if head else 5) else ""
        content = self._reader.read(size + 2)
        hear = self._hearers.get(int(words[2]), lambda message: None)
        hear(Message(words[1], reply, content[:head], content[head:size]))


class Objects:
    """A bucket of the object store: a stream OBJ_<bucket> with the chunks of an object and a record that names them."""

    def __init__(self, connection, bucket):
        self._connection, self._bucket = connection, bucket

    def put(self, name, data):
        number = uuid.uuid4().hex
        chunks = [data[first:first + CHUNK] for first in range(0, len(data), CHUNK)]
        for n, chunk in enumerate(chunks):
            self._connection.store(f"$O.{self._bucket}.C.{number}", chunk, {"Nats-Msg-Id": f"{number}-{n}"})
        record = {"name": name, "bucket": self._bucket, "nuid": number, "size": len(data), "chunks": len(chunks),
                  "digest": "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode(),
                  "options": {"max_chunk_size": CHUNK}}
        self._connection.store(self._record(name), json.dumps(record).encode(), {})

    def get(self, name):
        record = json.loads(self._read({"last_by_subj": self._record(name)}).data)
        chunks, sequence = [], 0
        for _ in range(record["chunks"]):
            chunk = self._read({"seq": sequence + 1, "next_by_subj": f"$O.{self._bucket}.C.{record['nuid']}"})
            sequence = int(chunk.headers["Nats-Sequence"])
            chunks.append(chunk.data)
        return b"".join(chunks)

    def _record(self, name):
        return f"$O.{self._bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"

    def _read(self, which):
        answer = self._connection.request(f"$JS.API.DIRECT.GET.OBJ_{self._bucket}", json.dumps(which).encode())
        if answer.status:
            raise Refused(f"{self._bucket}: {which}: {answer.status}")
        return answer
