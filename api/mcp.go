package api

import (
	"net/http"

	"packhorse/api/mcp"
)

const (
	mcpPath = "/mcp"
	// mcpCosts is the memory of a message: copies of its text on the way to the body of a call, or the
	// answer of a call and the same as content. The calls count for themselves.
	mcpCosts = 8 << 20
)

// mcp is the endpoint for the Model Context Protocol. It asks for a token and for no scope: each
// call within it asks for that of its own route.
func (s *Server) mcp(version string) *endpoint {
	door := mcp.New(calls{s}, s.limits.JSONBytes, version)
	return &endpoint{
		Route: Route{
			Method: http.MethodPost, Path: mcpPath, Handler: door.Serve, Denied: http.StatusForbidden, Org: true,
			BodyMax: s.limits.JSONBytes, CostsBytes: mcpCosts,
		},
		label: mcpPath, action: "mcp",
	}
}
