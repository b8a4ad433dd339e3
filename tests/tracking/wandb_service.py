"""As much of the W&B service as `wandb sync` needs, on this machine: it remembers which rows of which run arrived."""

import contextlib
import gzip
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

KEY = "0123456789" * 4


class Service:
    """History rows by run id, in the order of the service; ``refuses`` answers every upload with an error."""

    def __init__(self, refuses=False):
        self.refuses = refuses
        self.rows = {}
        self.groups = {}
        self.url = ""

    def answer(self, path, body):
        if path.endswith("/graphql"):
            query = json.loads(body)
            name = re.search(r"(query|mutation)\s+(\w+)", query["query"])
            return self._graphql(name.group(2) if name else "", query.get("variables") or {})
        if path.endswith("/file_stream"):
            history = (json.loads(body).get("files") or {}).get("wandb-history.jsonl")
            if history:
                rows = self.rows.setdefault(path.split("/")[-2], [])
                start = history["offset"]
                rows[start : start + len(history["content"])] = [json.loads(line) for line in history["content"]]
        return {}

    def _graphql(self, name, given):
        if name == "UpsertBucket":
            if self.refuses:
                return {"errors": [{"message": "permission denied"}]}
            run = given["name"]
            self.groups.setdefault(run, given["groupName"])
            project = {"id": "p", "name": given["project"], "entity": {"id": "e", "name": "me"}}
            lines = len(self.rows.setdefault(run, []))
            bucket = {"id": run, "name": run, "config": "{}", "historyLineCount": lines, "project": project}
            return {"data": {"upsertBucket": {"bucket": bucket, "inserted": lines == 0}}}
        if name == "CreateRunFiles":
            files = [{"name": file, "uploadUrl": f"{self.url}/upload/{file}"} for file in given["files"]]
            return {"data": {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}}
        viewer = {"id": "u", "entity": "me", "flags": "{}", "username": "me", "teams": {"edges": []}}
        return {"data": {"viewer": viewer} if name == "Viewer" else {}}


@contextlib.contextmanager
def serving(service):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            text = json.dumps(service.answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_PUT = do_GET = do_POST

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
