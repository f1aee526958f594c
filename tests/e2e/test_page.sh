#!/usr/bin/env bash
# The page of tern-agent in a real browser, headless: it appears within a second, shows the daemon's figures, sends requests
# to the agent alone, and at 400 pixels nothing is wider than the screen. Saves screenshots if TERN_SCREENSHOTS names a
# folder. test_agent.sh runs the page's script without a browser.
source "$(dirname "$0")/with_ternd.sh"
[[ -n ${TERN_FULL:-} ]] || skip "a browser takes hundreds of MB to install: TERN_FULL=1"
needs chromium "to show the page"
needs curl "to ask tern-agent"
[[ -x $TERN_BIN/tern-agent ]] || skip "there is no tern-agent in this build: libmicrohttpd was not found"
LOAD_MS_MAX=1000

ternd_start "" 16M 1
"$TERN_BUILD/tests/holder" put "$SOCKET" 16 1 >/dev/null || fail "holder"
mkfifo "$DIR/never"
exec 9<>"$DIR/never"
"$TERN_BUILD/tests/holder" hold "$SOCKET" <&9 >"$DIR/held" & # sessions to show
PIDS[holder]=$!
wait_for "a session" grep -q ready "$DIR/held"
"$TERN_BIN/tern-agent" --listen 127.0.0.1:0 --socket "$ADMIN" 2>"$DIR/agent" &
PIDS[agent]=$!
wait_for "tern-agent" grep -q "listens at" "$DIR/agent"
URL=$(sed -n 's/.*listens at \(.*\)\/$/\1/p' "$DIR/agent")

# The agent's page, followed by a script that writes down what the browser made of it. This server
# also stands between browser and agent, so it sees every request.
cat >"$DIR/between.py" <<'PY'
import http.server, sys, urllib.request

# A browser's window cannot be narrower than 500 pixels, so the page is in a frame.
FRAME = '<!doctype html><body style="margin:0"><iframe src="/" style="border:0;width:%spx;height:1200px"></iframe></body>'
MEASURE = b"""<script>
addEventListener('load', function () {
    var loaded = performance.now(), was = document.getElementById('state').textContent;
    var wait = setInterval(function () {
        var out = top.document.body;
        if (document.getElementById('state').textContent === was && performance.now() < loaded + 5000) return;
        clearInterval(wait);
        out.setAttribute('data-drawn-ms', Math.round(performance.now()));
        out.setAttribute('data-wide', document.documentElement.scrollWidth);
        out.setAttribute('data-screen', innerWidth);
        out.setAttribute('data-text', document.body.innerText.replace(/\\s+/g, ' '));
    }, 5);
});
</script></body>"""

class Between(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.startswith("/frame"):
            self.answer((FRAME % self.path[6:]).encode(), "text/html")
            return
        print(self.path, flush=True)
        with urllib.request.urlopen(sys.argv[1] + self.path, timeout=10) as answer:
            body, kind = answer.read(), answer.headers["Content-Type"]
        if self.path == "/":
            assert b"</body>" in body
            body = body.replace(b"</body>", MEASURE)
        self.answer(body, kind)
    def answer(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Between)
print("port", server.server_port, flush=True)
server.serve_forever()
PY
python3 "$DIR/between.py" "$URL" >"$DIR/asked" 2>"$DIR/between.err" &
PIDS[between]=$!
wait_for "what stands between" grep -q "^port" "$DIR/asked"
PORT=$(sed -n 's/^port //p' "$DIR/asked")

browse() { # WIDTH: writes the resulting page to $DIR/dom, and a screenshot
    local out=${TERN_SCREENSHOTS:-$DIR} what
    for what in "--screenshot=$out/page-$1.png" --dump-dom; do
        timeout 60 chromium --headless --no-sandbox --disable-gpu --no-first-run --user-data-dir="$DIR/profile" --window-size=1200,1200 \
            --virtual-time-budget=4000 "$what" "http://127.0.0.1:$PORT/frame$1" >"$DIR/dom" 2>"$DIR/chromium" ||
            fail "chromium: $(tail -n 3 "$DIR/chromium")"
    done
    [[ $(head -c 4 "$out/page-$1.png" | tail -c 3) == PNG ]] || fail "no screenshot"
}
noted() { grep -o "data-$1=\"[^\"]*\"" "$DIR/dom" | head -n 1 | cut -d'"' -f2; }

for width in 1200 400; do
    browse $width
    for word in "serving for" holder t0; do
        [[ $(noted text) == *"$word"* ]] || fail "at $width pixels the page does not show '$word': $(noted text)"
    done
    [[ $(noted screen) == "$width" && $(noted wide) -le $width ]] ||
        fail "the page is $(noted wide) pixels wide on a screen of $(noted screen)"
    echo "screen=$(noted screen) wide=$(noted wide) drawn_ms=$(noted drawn-ms)"
    [[ $(noted drawn-ms) -lt $LOAD_MS_MAX ]] || fail "the page takes $(noted drawn-ms) ms"
done
[[ $(grep -v "^port\|favicon" "$DIR/asked" | sort -u | tr '\n' ' ') == "/ /state.json " ]] || fail "the page asks for more: $(sort -u "$DIR/asked")"
echo "page: ok"
