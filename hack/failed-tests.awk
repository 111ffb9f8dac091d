# SPDX-FileCopyrightText: The Skyhook authors
# SPDX-License-Identifier: Apache-2.0
#
# Prints what the tests that failed said, from the output of go test -v. The state of a cluster that follows a failure is long, and
# whoever sees only the end of a log should see why.
/^=== (RUN|NAME|CONT|PAUSE) / { test = $3; next }
/^--- kubectl |^(FAIL|PASS|ok)/ { test = "" }
/^ *--- FAIL: / { order[++failed] = $3; took[$3] = $4 }
/^ *--- (FAIL|PASS|SKIP): / { test = $3; next }
test != "" { lines[test, ++count[test]] = $0 }
END {
	for (i = 1; i <= failed; i++) {
		name = order[i]
		print "\nfailed: " name " " took[name]
		for (j = count[name] > 40 ? count[name] - 39 : 1; j <= count[name]; j++) print lines[name, j]
	}
}
