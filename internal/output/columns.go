// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
)

// columns are the columns of -o custom-columns, which only kubectl itself can print: its libraries have all other formats.
type columns struct {
	headers []string
	paths   []*jsonpath.JSONPath
}

func newColumns(spec string) (*columns, error) {
	c := &columns{}
	for _, column := range strings.Split(spec, ",") {
		header, path, _ := strings.Cut(column, ":")
		parsed := jsonpath.New(header).AllowMissingKeys(true)
		if err := parsed.Parse("{." + strings.TrimPrefix(strings.Trim(path, "{}"), ".") + "}"); err != nil || path == "" {
			return nil, fmt.Errorf("column %q is not NAME:PATH, such as NODE:.nodeName", column)
		}
		c.headers, c.paths = append(c.headers, header), append(c.paths, parsed)
	}
	return c, nil
}

// PrintObj prints a row for each element of a list, or one for anything else.
func (c *columns) PrintObj(o runtime.Object, out io.Writer) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	var rows []any
	if json.Unmarshal(raw, &rows) != nil {
		rows = []any{nil}
		err = json.Unmarshal(raw, &rows[0])
	}
	table := printers.GetNewTabWriter(out)
	fmt.Fprintln(table, strings.Join(c.headers, "\t"))
	for _, row := range rows {
		cells := make([]string, len(c.paths))
		for i, path := range c.paths {
			found, failed := path.FindResults(row)
			err = errors.Join(err, failed)
			var words []string
			for _, value := range slices.Concat(found...) {
				words = append(words, fmt.Sprint(value.Interface()))
			}
			cells[i] = cmp.Or(strings.Join(words, ","), "<none>")
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return errors.Join(err, table.Flush())
}
