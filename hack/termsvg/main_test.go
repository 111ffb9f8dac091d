// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got := parse("\x1b[1;32m$\x1b[0m get\r\nA\tB\n\x1b[2K\x1b[33mwait\x1b[39m <n1>\n\n")
	want := [][]span{
		{{"$", "green bold"}, {" get", ""}},
		{{"A       B", ""}},
		{{"wait", "yellow"}, {" <n1>", ""}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestRenderIsXML(t *testing.T) {
	svg := render("a & b", parse("\x1b[31m1 < 2 & \"x\"\x1b[0m\n12  45\n"))
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{"<title>a &amp; b</title>", `class="red">1 &lt; 2 &amp; &#34;x&#34;</text>`, `<text x="47.2" y="60"`} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}
