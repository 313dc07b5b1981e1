// Package must ends a test at an error that it does not expect: what goes in is what a
// function returned, what comes out is its value.
package must

// T is a test: a *testing.T, or one of another library.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Do ends the test if there is an error.
func Do(t T, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Get has the value that a function returned, and ends the test if there is an error:
//
//	item := must.Get(registry.Item(ctx, id))(t)
func Get[V any](value V, err error) func(T) V {
	return func(t T) V {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return value
	}
}
