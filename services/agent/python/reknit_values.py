"""Values of a state_dict as bytes: numbers, texts, containers and tensors, in a form that any build reads. Nothing is pickled.

The form is a mark, the length of a JSON text, that text, and behind it the bytes of tensors, arrays and texts of bytes. JSON has
null, true, false, whole numbers, finite floats and strings as they are, and everything else as a list that begins with the kind.
Equal values have equal bytes: the items of a dict are sorted (not those of an OrderedDict), and so are those of a set.
"""

import collections
import json
import math
import sys

import torch

import reknit

MARK = b"reknit1\n"
DEPTH = 64  # of containers within each other
LEAF_BYTES = 64  # that a number or the frame of a container takes, about

_LISTS = {"list": list, "tuple": tuple, "deque": collections.deque, "torch.Size": torch.Size}
_SETS = {"set": set, "frozenset": frozenset}
_DICTS = {"dict": dict, "OrderedDict": collections.OrderedDict, "Counter": collections.Counter}
_KINDS = {kind: name for name, kind in [*_LISTS.items(), *_SETS.items(), *_DICTS.items()]}
_DTYPES = {str(dtype).split(".")[1]: dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class Encoder:
    """Encodes one tree of values. ignore has the dotted names of values that are left out."""

    def __init__(self, ignore=()):
        self.ignore = frozenset(ignore)
        self._parts, self._end = [], 0  # bytes behind the text

    def encode(self, values, name=""):
        """Returns the bytes of values. TypeError names what is no plain value."""
        text = json.dumps(self._node(values, name, 0), separators=(",", ":"), allow_nan=False).encode()
        return b"".join([MARK, len(text).to_bytes(8, "little"), text, *self._parts])

    def _node(self, value, name, depth):
        if name in self.ignore:
            return ["ignored"]
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else ["float", repr(value)]
        if depth > DEPTH:
            raise refusal(name, f"at most {DEPTH} containers within each other", "more")
        if kind in _KINDS:
            return self._container(value, _KINDS[kind], name, depth + 1)
        if torch.is_tensor(value):
            return self._tensor(value, name)
        return self._other(value, kind, name)

    def _container(self, value, kind, name, depth):
        if kind in _DICTS:
            items = [[self._node(key, f"{name} (a key)", depth), self._node(one, dotted(name, key), depth)] for key, one in value.items()]
            return [kind, items if kind == "OrderedDict" else sorted(items, key=lambda item: json.dumps(item[0]))]
        nodes = [self._node(one, dotted(name, at), depth) for at, one in enumerate(value)]
        if kind in _SETS:
            nodes.sort(key=json.dumps)
        return [kind, nodes, value.maxlen] if kind == "deque" else [kind, nodes]

    def _tensor(self, value, name):
        if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
            raise refusal(name, "a dense tensor", f"one of {value.layout} on {value.device.type}")
        data = bytearray(value.numel() * value.element_size())
        if data:
            torch.frombuffer(data, dtype=value.dtype).copy_(value.detach().reshape(-1))
        return ["tensor", str(value.dtype).split(".")[1], list(value.shape), value.device.type, *self._bytes(bytes(data))]

    def _other(self, value, kind, name):
        if kind in (bytes, bytearray):
            return [kind.__name__, *self._bytes(bytes(value))]
        if kind is complex:
            return ["complex", repr(value.real), repr(value.imag)]
        if kind is torch.dtype:
            return ["dtype", str(value).split(".")[1]]
        if kind is torch.device:
            return ["device", str(value)]
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)) and value.dtype.kind in "biufcSUmM":
            return ["numpy", value.dtype.str, list(value.shape), isinstance(value, numpy.ndarray), *self._bytes(value.tobytes())]
        raise refusal(name, "tensors and plain values (numbers, texts, lists, dictionaries)", kind.__name__)

    def _bytes(self, data):
        """Puts bytes behind the text, and returns where and how many."""
        self._parts.append(data)
        self._end += len(data)
        return self._end - len(data), len(data)


def decode(data, own=None):
    """Returns the values of bytes that encode made. Values that were left out are taken from own, a tree of the same form."""
    if bytes(data[:len(MARK)]) != MARK:
        raise ValueError(f"values of the state: expected {MARK!r} before them, got {bytes(data[:len(MARK)])!r}")
    end = len(MARK) + 8
    size = int.from_bytes(data[len(MARK):end], "little")
    return _value(json.loads(bytes(data[end:end + size])), data[end + size:], own)


def _value(node, data, own):
    if not isinstance(node, list):
        return node
    kind, *rest = node
    if kind == "ignored":
        return own
    if kind in _DICTS:
        return _DICTS[kind]({(key := _value(k, data, None)): _value(v, data, _item(own, key)) for k, v in rest[0]})
    if kind in _LISTS:
        values = [_value(one, data, _item(own, at)) for at, one in enumerate(rest[0])]
        return _LISTS[kind](values, *rest[1:])
    if kind in _SETS:
        return _SETS[kind](_value(one, data, None) for one in rest[0])
    return _leaf(kind, rest, data)


def _leaf(kind, rest, data):
    if kind == "tensor":
        dtype, shape, device, first, size = rest
        flat = torch.frombuffer(bytearray(data[first:first + size]), dtype=_DTYPES[dtype]) if size else torch.empty(0, dtype=_DTYPES[dtype])
        return flat.reshape(shape).to(device)
    if kind in ("bytes", "bytearray"):
        return {"bytes": bytes, "bytearray": bytearray}[kind](data[rest[0]:rest[0] + rest[1]])
    if kind == "numpy":
        import numpy
        dtype, shape, is_array, first, size = rest
        array = numpy.frombuffer(bytearray(data[first:first + size]), dtype=numpy.dtype(dtype)).reshape(shape)
        return array if is_array else array[()]
    makers = {"float": float, "complex": lambda real, imag: complex(float(real), float(imag)), "dtype": _DTYPES.get, "device": torch.device}
    if kind not in makers:
        raise ValueError(f"values of the state: expected a kind that this build knows, got {kind!r}: it is of a newer one")
    return makers[kind](*rest)


def _item(own, key):
    """Returns what a container of one's own has at a place, or None."""
    try:
        return own[key]
    except (KeyError, IndexError, TypeError):
        return None


def room(values):
    """Returns about how many bytes values take when they are encoded, whatever their numbers are. O(values)."""
    if isinstance(values, dict):
        return LEAF_BYTES + sum(room(key) + room(value) for key, value in values.items())
    if isinstance(values, (list, tuple, set, frozenset, collections.deque)):
        return LEAF_BYTES + sum(map(room, values))
    if torch.is_tensor(values):
        return 2 * LEAF_BYTES + values.numel() * values.element_size()
    return LEAF_BYTES + (len(values) if isinstance(values, (str, bytes, bytearray)) else getattr(values, "nbytes", 0))


def dotted(name, key):
    """Returns the name of a value within another one."""
    return f"{name}.{key}" if name else str(key)


def refusal(name, expected, got):
    """Returns the error that something cannot move."""
    return TypeError(f"{name}: expected {expected}, got {got}: it would stay behind when a process joins. If it is a function of the step, or of "
                     f"this process alone, say join(…, ignore=[{name!r}])")
