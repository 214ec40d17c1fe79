#!/usr/bin/env python3
"""How much more a server with several streams gives than one with a single stream: same model, one run.

    bench/server_throughput.py -m MODEL.gguf [--program build/bench/slipring] [-t 2] [--streams 8] [--tokens 96]

Starts `slipring serve` without drafts, so that every stream takes one token a step, and reads streamed completions of equal
length: alone, then in parallel, in turns. Prints the median of each in tokens a second over all streams, and their ratio.
"""

import argparse
import concurrent.futures
import http.client
import json
import re
import signal
import statistics
import subprocess
import threading
import time

# Spelled ends of a turn: banned, so that every stream has the length asked for.
ENDS = ["<eos>", "</s>", "<end_of_turn>", "<|im_end|>", "<|endoftext|>", "<|eot|>", "<|end_of_text|>", "<|return|>", "<|eom|>"]
WORDS = ["river", "stone", "winter", "letter", "garden", "engine", "harbour", "window"]


class Server:
    def __init__(self, arguments):
        command = [arguments.program, "serve", "-m", arguments.model, "--port", "0", "-t", str(arguments.threads),
                   "--parallel", str(arguments.streams), "--no-draft", "--prefix-cache", "0", "--ctx", "2048"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"http://[\d.]+:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        else:
            raise SystemExit("the server did not start")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise SystemExit(reply.read().decode())
        return reply

    def ends(self):
        """Token ids that end a turn, of those spelled above."""
        ids = []
        for text in ENDS:
            tokens = json.load(self.post("/tokenize", {"content": text, "parse_special": True}))["tokens"]
            if len(tokens) == 1:
                ids.append(tokens[0])
        return ids

    def stream(self, number, tokens, bias):
        """Reads one streamed completion; the tokens that it had."""
        body = {"prompt": f"The {WORDS[number % len(WORDS)]} was", "max_tokens": tokens, "temperature": 0, "stream": True,
                "logit_bias": bias, "stream_options": {"include_usage": True}}
        last = None
        for line in self.post("/v1/completions", body):
            if line.startswith(b"data: {"):
                last = line
        return json.loads(last[6:])["usage"]["completion_tokens"]

    def speed(self, streams, tokens, bias):
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(streams) as pool:
            counts = list(pool.map(lambda number: self.stream(number, tokens, bias), range(streams)))
        seconds = time.monotonic() - start
        if any(count != tokens for count in counts):
            raise SystemExit(f"streams ended early: {counts}")
        return sum(counts) / seconds

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--program", default="build/release/slipring")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    server = Server(arguments)
    try:
        bias = {str(token): -100 for token in server.ends()}
        server.speed(1, 8, bias)  # to warm up
        alone, together = [], []
        for _ in range(arguments.rounds):
            alone.append(server.speed(1, arguments.tokens, bias))
            together.append(server.speed(arguments.streams, arguments.tokens, bias))
        one, many = statistics.median(alone), statistics.median(together)
        print(f"{arguments.model}: 1 stream {one:.1f} tokens/s ({min(alone):.1f} to {max(alone):.1f}), {arguments.streams} streams "
              f"{many:.1f} ({min(together):.1f} to {max(together):.1f}), ratio {many / one:.2f}")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
