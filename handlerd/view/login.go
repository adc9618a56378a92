package view

import "context"

type loginKey struct{}

// WithLogin says in a request's context whose it is, so that a ticket is good for the login that asked for it alone.
func WithLogin(ctx context.Context, login string) context.Context {
	return context.WithValue(ctx, loginKey{}, login)
}

// LoginOf gives it; "" for the owner of the unix socket.
func LoginOf(ctx context.Context) string {
	login, _ := ctx.Value(loginKey{}).(string)
	return login
}
