package egress

import "github.com/handlerd/handler/sandbox"

// Env tells programs in a sandbox of the way out. What listens inside is reached directly.
func Env() map[string]string {
	const proxy, direct = "http://" + sandbox.ProxyAddr, "127.0.0.1,localhost,::1"
	return map[string]string{
		"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": direct,
		"http_proxy": proxy, "https_proxy": proxy, "no_proxy": direct,
		"NODE_USE_ENV_PROXY": "1", // Node's own fetch knows no proxy without it
	}
}
