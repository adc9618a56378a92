# Serves this folder on the sandbox's own loopback, in the background, and returns when it answers.
python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 &
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  curl -fsS --noproxy '*' -o /dev/null http://127.0.0.1:8000/ 2>/dev/null && { echo "serving on http://127.0.0.1:8000/"; exit 0; }
  sleep 0.1
done
echo "the server did not come up" >&2
exit 1
