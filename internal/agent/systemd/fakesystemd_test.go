// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	godbus "github.com/godbus/dbus/v5"
)

// fakeSystemd answers at the private socket of a host like systemd: it has units, restarts them and sends the results
// of jobs to all connections.
type fakeSystemd struct {
	t     *testing.T
	mu    sync.Mutex
	units map[string]map[string]any
	asked []string
	// result is the result of jobs; cut closes all connections during a job.
	result string
	cut    bool
	// logind is the error that answers a reboot request.
	logind string
	conns  []net.Conn
	serial uint32
}

func newFakeSystemd(t *testing.T, root string, units map[string]map[string]any) *fakeSystemd {
	t.Helper()
	p := &fakeSystemd{t: t, units: units, result: "done"}
	p.listen(filepath.Join(root, "run/systemd/private"))
	return p
}

// listen also answers at another socket; at that of the system bus it is logind too.
func (p *fakeSystemd) listen(at string) {
	t := p.t
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	// The address of a socket must be short, but the directory of a test is long.
	dir, err := os.Open(filepath.Dir(at))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(at)))
	if err != nil {
		t.Fatal(err)
	}
	_ = dir.Close()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serveConn(conn)
		}
	}()
}

func (p *fakeSystemd) serveConn(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if _, err := in.ReadByte(); err != nil {
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch word := strings.Fields(line); {
		case word[0] == "AUTH" && len(word) == 1:
			fmt.Fprint(conn, "REJECTED EXTERNAL\r\n")
		case word[0] == "AUTH":
			fmt.Fprint(conn, "OK 0123456789abcdef0123456789abcdef\r\n")
		case word[0] == "BEGIN":
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			p.serveMessages(conn, in)
			return
		default:
			fmt.Fprint(conn, "ERROR\r\n")
		}
	}
}

func (p *fakeSystemd) serveMessages(conn net.Conn, in *bufio.Reader) {
	for {
		msg, err := godbus.DecodeMessage(in)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.answerCall(conn, msg)
		p.mu.Unlock()
	}
}

func (p *fakeSystemd) answerCall(conn net.Conn, msg *godbus.Message) {
	member, _ := msg.Headers[godbus.FieldMember].Value().(string)
	path, _ := msg.Headers[godbus.FieldPath].Value().(godbus.ObjectPath)
	switch member {
	case "Subscribe", "AddMatch":
		p.reply(conn, msg)
	case "Get":
		p.reply(conn, msg, godbus.MakeVariant("running"))
	case "GetAll":
		name := ""
		for unit := range p.units {
			if strings.HasSuffix(string(path), "/"+escapeUnit(unit)) {
				name = unit
			}
		}
		props := map[string]godbus.Variant{"LoadState": godbus.MakeVariant("not-found"), "ActiveState": godbus.MakeVariant("inactive")}
		for key, value := range p.units[name] {
			props[key] = godbus.MakeVariant(value)
		}
		p.reply(conn, msg, props)
	case "Hello":
		p.reply(conn, msg, ":1.1")
	case "Reboot":
		p.asked = append(p.asked, fmt.Sprint("logind reboot ", msg.Body[0]))
		if p.logind != "" {
			p.replyError(conn, msg, p.logind, "no")
			return
		}
		p.reply(conn, msg)
	case "Reload":
		p.asked = append(p.asked, "reload")
		p.reply(conn, msg)
	case "ListUnitsByPatterns":
		p.reply(conn, msg, p.listUnits())
	case "StartUnit":
		p.asked = append(p.asked, fmt.Sprint("start ", msg.Body[0], " ", msg.Body[1]))
		p.reply(conn, msg, godbus.ObjectPath("/org/freedesktop/systemd1/job/1"))
	case "RestartUnit":
		p.restartUnit(conn, msg, msg.Body[0].(string))
	default:
		p.replyError(conn, msg, "org.freedesktop.DBus.Error.UnknownMethod", "no such method")
	}
}

func (p *fakeSystemd) listUnits() []unitEntry {
	out := []unitEntry{}
	for name, unit := range p.units {
		if unit["SubState"] == "running" {
			out = append(out, unitEntry{Name: name, Load: "loaded", Active: "active", Sub: "running", Path: "/u", JobPath: "/"})
		}
	}
	return out
}

func (p *fakeSystemd) restartUnit(conn net.Conn, msg *godbus.Message, name string) {
	p.asked = append(p.asked, "restart "+name)
	unit := p.units[name]
	if unit == nil {
		p.replyError(conn, msg, "org.freedesktop.systemd1.NoSuchUnit", "Unit "+name+" not found.")
		return
	}
	unit["MainPID"] = unit["MainPID"].(uint32) + 1000
	unit["InvocationID"] = append([]byte{1}, unit["InvocationID"].([]byte)[1:]...)
	if p.cut {
		p.cut = false
		for _, c := range p.conns {
			_ = c.Close()
		}
		p.conns = nil
		return
	}
	job := godbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", len(p.asked)))
	p.reply(conn, msg, job)
	for _, c := range p.conns {
		p.send(c, &godbus.Message{Type: godbus.TypeSignal, Headers: map[godbus.HeaderField]godbus.Variant{
			godbus.FieldPath: godbus.MakeVariant(godbus.ObjectPath("/org/freedesktop/systemd1")), godbus.FieldInterface: godbus.MakeVariant("org.freedesktop.systemd1.Manager"),
			godbus.FieldMember: godbus.MakeVariant("JobRemoved"), godbus.FieldSignature: godbus.MakeVariant(godbus.SignatureOf(uint32(0), job, "", "")),
		}, Body: []any{uint32(len(p.asked)), job, name, p.result}})
	}
}

func (p *fakeSystemd) reply(conn net.Conn, msg *godbus.Message, values ...any) {
	headers := map[godbus.HeaderField]godbus.Variant{godbus.FieldReplySerial: godbus.MakeVariant(msg.Serial())}
	if len(values) > 0 {
		headers[godbus.FieldSignature] = godbus.MakeVariant(godbus.SignatureOf(values...))
	}
	p.send(conn, &godbus.Message{Type: godbus.TypeMethodReply, Headers: headers, Body: values})
}

func (p *fakeSystemd) replyError(conn net.Conn, msg *godbus.Message, name, why string) {
	p.send(conn, &godbus.Message{Type: godbus.TypeError, Headers: map[godbus.HeaderField]godbus.Variant{
		godbus.FieldReplySerial: godbus.MakeVariant(msg.Serial()), godbus.FieldErrorName: godbus.MakeVariant(name),
		godbus.FieldSignature: godbus.MakeVariant(godbus.SignatureOf("")),
	}, Body: []any{why}})
}

type unitEntry struct {
	Name, Description, Load, Active, Sub, Followed string
	Path                                           godbus.ObjectPath
	Job                                            uint32
	JobType                                        string
	JobPath                                        godbus.ObjectPath
}

func (p *fakeSystemd) send(conn net.Conn, msg *godbus.Message) {
	p.serial++
	var wire bytes.Buffer
	if err := msg.EncodeTo(&wire, binary.LittleEndian); err != nil {
		p.t.Errorf("answering: %v", err)
		return
	}
	binary.LittleEndian.PutUint32(wire.Bytes()[8:], p.serial) // which the library keeps to itself
	_, _ = conn.Write(wire.Bytes())                           // the other side may be gone
}

func escapeUnit(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%x", c)
		}
	}
	return b.String()
}
