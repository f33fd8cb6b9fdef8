"""Runs a probe twice at the same time, as processes of one job: two.py PROBE ARGUMENTS... Prints
the bytes that each was granted."""

import json
import subprocess
import sys

both = [subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
for process in both:
    assert process.stdout.readline().strip() == "ready", "a probe did not get ready"
for process in both:
    process.stdin.write("go\n")
    process.stdin.flush()
granted = [json.loads(process.stdout.readline())["granted_bytes"] for process in both]
print(json.dumps({"granted_bytes": granted}), flush=True)
sys.stdin.read()
for process in both:
    process.stdin.close()
    process.wait()
