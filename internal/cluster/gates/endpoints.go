// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package gates

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// AnyEndpoint allows every Prometheus server.
const AnyEndpoint = "*"

// Endpoints are the Prometheus servers that policies may name. Who edits policies must not be able to make the operator send
// requests to any address that it can reach.
type Endpoints struct {
	Allowed   []string // beginnings of URLs, or AnyEndpoint; Services of the cluster are always allowed
	Namespace string   // of the operator: a name without a namespace is a Service there
	TokenFile string   // has the bearer token for servers of Allowed over https; empty for none
}

// resolve returns the address to query for the URL of a gate. The name of a Service is completed, so that it cannot be the name of a
// host outside the cluster.
func (e Endpoints) resolve(raw string) (address string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%q is not the address of a Prometheus server", raw)
	}
	if slices.ContainsFunc(e.Allowed, func(allowed string) bool { return allowed == AnyEndpoint || isBelow(u, allowed) }) {
		return raw, nil
	}
	host := e.serviceHost(u.Hostname())
	if host == "" {
		return "", fmt.Errorf("%s is not a Service of the cluster: name it in PROMETHEUS_ENDPOINTS of the operator, or use a Service such as http://prometheus.monitoring:9090", u.Host)
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	u.Host = host
	return u.String(), nil
}

// readToken returns the bearer token for an address; empty when it gets none. Only servers that the operator's settings name get it:
// who edits policies can name any Service, also one that collects tokens.
func (e Endpoints) readToken(address string) (string, error) {
	u, err := url.Parse(address)
	isNamed := func(allowed string) bool { return allowed != AnyEndpoint && isBelow(u, allowed) }
	if e.TokenFile == "" || err != nil || u.Scheme != "https" || !slices.ContainsFunc(e.Allowed, isNamed) {
		return "", nil
	}
	content, err := os.ReadFile(e.TokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the file of PROMETHEUS_TOKEN_FILE: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("the file of PROMETHEUS_TOKEN_FILE, %s, must have one token", e.TokenFile)
	}
	return token, nil
}

// isBelow reports whether a URL begins with an allowed one: the same scheme and host, and a path below its path. It may have the user of the
// allowed one, or none: who edits policies must not try passwords through the operator.
func isBelow(u *url.URL, allowed string) bool {
	a, err := url.Parse(allowed)
	if err != nil || u.Scheme != a.Scheme || !strings.EqualFold(u.Host, a.Host) || strings.Contains(u.Path, "..") {
		return false
	}
	isOtherUser := u.User != nil && (a.User == nil || *u.User != *a.User)
	path := strings.TrimSuffix(a.Path, "/")
	return !isOtherUser && (u.Path == path || strings.HasPrefix(u.Path, path+"/"))
}

// serviceHost returns the host name of a Service in the cluster's domain; empty when a name is none.
func (e Endpoints) serviceHost(name string) string {
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(name, ".")), ".")
	if slices.Contains(labels, "") || isNumber(labels[len(labels)-1]) || strings.Contains(name, ":") {
		return ""
	}
	switch {
	case len(labels) == 1 && labels[0] != "localhost":
		return labels[0] + "." + e.Namespace + ".svc"
	case len(labels) == 2:
		return strings.Join(labels, ".") + ".svc"
	case len(labels) == 3 && labels[2] == "svc", len(labels) == 5 && strings.Join(labels[2:], ".") == "svc.cluster.local":
		return strings.Join(labels, ".")
	}
	return ""
}

// isNumber reports whether a label is all digits, as the last one of an IPv4 address.
func isNumber(label string) bool {
	return strings.Trim(label, "0123456789") == "" || strings.HasPrefix(label, "0x")
}
