"""A worker that loads anything and knows nothing of choices."""

import json
import sys

for line in sys.stdin:
    request = json.loads(line)["do"]
    if request == "quit":
        break
    if request == "load":
        answer = {"ok": True, "phases": {"load": 0.0}, "protocol": 3, "notes": []}
    else:
        answer = {"ok": False, "error": "unknown_request", "message": "no"}
    print(json.dumps(answer), flush=True)
