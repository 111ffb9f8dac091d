// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"reflect"
	"strings"
	"testing"
)

const sampleRelease = `
# written when the image was made
KAIROS_ID="kairos"
KAIROS_NAME="kairos-standard-opensuse-leap-15.6"
KAIROS_VERSION='v3.4.2'
KAIROS_SOFTWARE_VERSION_PREFIX=k3s
KAIROS_SOFTWARE_VERSION="v1.30.11+k3s1"
KAIROS_TARGETARCH=amd64
KAIROS_FIPS=""
ID=opensuse
nonsense
`

func TestKairosRelease(t *testing.T) {
	k := Kairos{Runs: true, Release: KairosRelease(sampleRelease), Boot: KairosActive}
	want := map[string]string{
		"ID": "kairos", "NAME": "kairos-standard-opensuse-leap-15.6", "VERSION": "v3.4.2",
		"SOFTWARE_VERSION_PREFIX": "k3s", "SOFTWARE_VERSION": "v1.30.11+k3s1",
	}
	if !reflect.DeepEqual(k.Release, want) {
		t.Errorf("read %v", k.Release)
	}
	if v := k.Version(); v != "v3.4.2-k3sv1.30.11+k3s1" {
		t.Errorf("version %q", v)
	}
	if v := (Kairos{Runs: true}).Version(); v != "" {
		t.Errorf("a version %q that nobody names", v)
	}
	back, ok := DecodeKairos(string(k.Encode()))
	if !ok || !reflect.DeepEqual(back, k) {
		t.Errorf("%+v came back as %+v", k, back)
	}
	for _, text := range []string{"", "{}", "null", `{"schema":"skyhook-agent/1","outcome":"succeeded"}`, string(k.Encode())[:30]} {
		if _, ok := DecodeKairos(text); ok {
			t.Errorf("%q is none", text)
		}
	}
}

// The kubelet keeps 4096 bytes.
func TestKairosFits(t *testing.T) {
	k := Kairos{Runs: true, Boot: strings.Repeat("<", 5000), Release: map[string]string{}}
	for _, key := range KairosKeys {
		k.Release[key] = strings.Repeat("\u2028", 5000)
	}
	if got := k.Encode(); len(got) > 4096 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestKairosBoot(t *testing.T) {
	for line, want := range map[string]string{
		"root=LABEL=COS_ACTIVE quiet":       KairosActive,
		"root=LABEL=COS_PASSIVE":            KairosPassive,
		"root=LABEL=COS_RECOVERY":           KairosRecovery,
		"root=LABEL=COS_SYSTEM":             KairosRecovery,
		"recovery-mode":                     KairosRecovery,
		"root=live:LABEL=COS_LIVE":          KairosLive,
		"root=live:CDLABEL=COS_LIVE":        KairosLive,
		"netboot":                           KairosLive,
		"root=LABEL=COS_ACTIVE COS_PASSIVE": KairosActive,
		"root=/dev/sda1":                    KairosUnknown,
		"":                                  KairosUnknown,
	} {
		if got := KairosBoot(line); got != want {
			t.Errorf("%q is %s, want %s", line, got, want)
		}
	}
}
