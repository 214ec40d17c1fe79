"""Starts `slipring serve` for a test and ends it."""

import os
import re
import signal
import subprocess
import threading

PROGRAM = os.environ.get("SLIPRING", "build/release/slipring")
# A plain template for the embedded model, which has none: it was trained on text alone.
PLAIN_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{{ m.content }} {% endfor %}"
)


class Server:
    """One server on a free port; `url` is where it listens."""

    def __init__(self, *arguments):
        command = [PROGRAM, "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.url = None
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"http://\S+", line)
            if found:
                self.url = found.group(0).rstrip("/")
                break
        if self.url is None:
            raise RuntimeError("the server did not start: " + "".join(self.lines))
        # Nobody else reads the pipe, and a full one would stop the server.
        self.reader = threading.Thread(target=self._drain, daemon=True)
        self.reader.start()

    def _drain(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def stop(self):
        """SIGTERM; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        self.reader.join()
        self.process.stderr.close()
        return status
