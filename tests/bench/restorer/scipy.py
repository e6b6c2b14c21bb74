# Solves assignments with scipy. Each line of the input names a file of an n x n matrix of doubles, and n.
# Answers a line of JSON: CPU seconds of the call alone, and the optimum. Begins with its version.
import json
import sys
import time

import numpy
import scipy
from scipy.optimize import linear_sum_assignment

print(json.dumps(scipy.__version__), flush=True)
file, cost = None, None
for line in sys.stdin:
    request = json.loads(line)
    if file != request["file"]:
        file = request["file"]
        cost = numpy.fromfile(file, dtype="<f8").reshape(request["n"], request["n"])
    before = time.process_time()
    rows, columns = linear_sum_assignment(cost)
    seconds = time.process_time() - before
    print(json.dumps({"seconds": seconds, "total": float(cost[rows, columns].sum())}), flush=True)
