package contract

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/reknit/reknit/shared/service"
)

const settingsPage = "../../deploy/settings.md"

func TestThePageOfSettingsIsUpToDate(t *testing.T) {
	page, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	text, err := withTable(string(page), settingsTable())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(settingsPage, text, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(page, text) {
		t.Error("deploy/settings.md is not what the structs' tags say: run make generate")
	}
}

func TestEachSettingHasItsUnitAndReason(t *testing.T) {
	for _, s := range settings() {
		if s.Unit == "" || s.Reason == "" {
			t.Errorf("%s of the %s: expected a unit and a reason, got %q and %q", s.Name, s.readBy[0], s.Unit, s.Reason)
		}
	}
}

// Settings that a service does not take by their units were found one by one: a pause of -1 s, a share of inf, the port 70000.
func TestNoProgramTakesASettingThatIsNotAsItsUnitSays(t *testing.T) {
	wrong := map[reflect.Kind][]string{
		reflect.Int: {"-1", "99999999999999999999", "x", "0.5"}, reflect.Int64: {"-1", "-1s", "99999999999999999999", "x"},
		reflect.Uint64: {"-1", "99999999999999999999", "x"}, reflect.Float64: {"-1", "inf", "NaN", "x"},
	}
	wrongTexts := map[string][]string{
		"id": {"a b"}, "ids, with commas": {"a,b c"}, "host:port": {"foo", "n1:70000", "n1:x"},
		"URL, or several with commas": {"::", "http://n1"}, "port": {"65536"},
	}
	tried := 0
	for _, program := range programs {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(program.config)) {
			name := field.Tag.Get("env")
			if name == "" || field.Type == reflect.TypeFor[slog.Level]() {
				continue
			}
			for _, value := range append(wrong[field.Type.Kind()], wrongTexts[field.Tag.Get("unit")]...) {
				tried++
				err := service.Read(reflect.New(reflect.TypeOf(program.config)).Interface(), map[string]string{name: value})
				if !errors.As(err, &service.Misconfigured{}) || !strings.Contains(err.Error(), name+": expected") {
					t.Errorf("%s with %s=%s: got %v, want an error that names the variable", program.name, name, value, err)
				}
			}
		}
	}
	if tried < 200 {
		t.Errorf("%d values were tried, want those of all settings", tried)
	}
}

func TestEachProgramTakesItsOwnDefaults(t *testing.T) {
	for _, program := range programs {
		if err := service.Read(reflect.New(reflect.TypeOf(program.config)).Interface(), map[string]string{}); err != nil {
			t.Errorf("%s: %v", program.name, err)
		}
	}
}

// A variable that a new program reads must not be missing in the page because nobody thought of it.
func TestEachVariableOfTheCodeIsInThePage(t *testing.T) {
	page, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	tag, found := regexp.MustCompile(`env:"(REKNIT_\w+)"|[gG]etenv\("(REKNIT_\w+)"\)`), 0
	eachSource(t, func(path, text string) {
		for _, match := range tag.FindAllStringSubmatch(text, -1) {
			found++
			if name := match[1] + match[2]; !bytes.Contains(page, []byte("`"+name+"`")) {
				t.Errorf("%s reads %s: expected it in deploy/settings.md", path, name)
			}
		}
	})
	if found < 50 {
		t.Errorf("%d variables found, expected all", found)
	}
}

// eachSource calls visit with every source file of the services and of what they share, tests not counted.
func eachSource(t *testing.T, visit func(path, text string)) {
	t.Helper()
	for _, root := range []string{"../../services", "../../shared"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			isSource := strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".py")
			isTest := strings.HasSuffix(path, "_test.go") || strings.HasPrefix(filepath.Base(path), "test_")
			if err != nil || !isSource || isTest {
				return err
			}
			text, err := os.ReadFile(path)
			visit(path, string(text))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
