package main

// upstreamFlags say how other hosts are reached: upstreams, and receivers of webhooks.
type upstreamFlags struct {
	UpstreamAllow []string `help:"Host names, addresses and networks (CIDR) that upstreams and webhooks may reach although they are private or loopback; comma-separated." placeholder:"HOST|CIDR"`
}
