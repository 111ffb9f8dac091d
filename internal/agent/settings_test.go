// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skyhook-k8s/skyhook/internal/pack"
)

// TestSettings checks the documented variables and their defaults.
func TestSettings(t *testing.T) {
	if d := cmp.Diff(Settings{
		MessageLimit: 2048, DriftChecks: []pack.Mode{pack.ModeApplyCheck, pack.ModeConfigCheck},
		Env: map[string]string{}, Redact: []string{}, Privileges: pack.Privileges{}, SourceDir: "/skyhook-package", StateDir: "/etc/skyhook", LogDir: "/var/log/skyhook", WriteLogs: true, BufferLimit: 8192,
	}, ReadSettings(nil)); d != "" {
		t.Error(d)
	}
	environ := []string{
		"SKYHOOK_RESOURCE_ID=demo-u-1_tuning_1.0.0", "SKYHOOK_DATA_DIR=/data", "SKYHOOK_ROOT_DIR=/state", "SKYHOOK_LOG_DIR=/logs",
		"SKYHOOK_AGENT_WRITE_LOGS=yes", "SKYHOOK_AGENT_BUFFER_LIMIT=100", "COPY_RESOLV=True", "OVERLAY_ALWAYS_RUN_STEP=TRUE",
		"SKYHOOK_RUN_ID=r", "SKYHOOK_INTERRUPT_ID=i", "SKYHOOK_CONFIG_DIGEST=d", "SKYHOOK_POD_UID=p", "SKYHOOK_REDACT=A,B",
		"SKYHOOK_DEADLINE=2026-01-31T12:00:00Z", "SKYHOOK_STAGE_TIMEOUT=30m0s", "SKYHOOK_AGENT_GRACE=1s", "SKYHOOK_TERMINATION_LOG=/m",
		"SKYHOOK_READ_ONLY_ROOT=/ro", "SKYHOOK_DRIFT_CHECKS=post-interrupt-check,apply-check,later", "SKYHOOK_MESSAGE_LIMIT=900",
		"SKYHOOK_IMAGE_DIR=/image", "SKYHOOK_WITH_CHECK=True", "SKYHOOK_STOP_FILE=/stop", "SKYHOOK_PRIVILEGES=services,/etc/motd.d",
	}
	got := ReadSettings(environ)
	got.Env = nil
	if d := cmp.Diff(Settings{
		Resource:  pack.ResourceID{Owner: "demo-u-1", Package: "tuning", Version: "1.0.0"},
		SourceDir: "/data", StateDir: "/state", LogDir: "/logs", WriteLogs: false, BufferLimit: 100, CopyResolv: true, AlwaysRun: true,
		RunID: "r", InterruptID: "i", ConfigDigest: "d", PodUID: "p", Redact: []string{"A", "B"},
		Deadline: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), StageTimeout: 30 * time.Minute, Grace: time.Second, MessageFile: "/m",
		ReadOnlyRoot: "/ro", DriftChecks: []pack.Mode{pack.ModeApplyCheck, pack.ModePostInterruptCheck}, MessageLimit: 900,
		CompactPod: CompactPod{ImageDir: "/image", WithCheck: true, StopFile: "/stop"}, Privileges: pack.Privileges{"services", "/etc/motd.d"},
	}, got); d != "" {
		t.Error(d)
	}
}
