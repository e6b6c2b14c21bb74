package consent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/reknit/reknit/services/agent/consent"
)

var (
	own      = consent.Node{Name: "a1", Site: "a"}
	newcomer = consent.Node{Name: "b1", Site: "b"}
	question = consent.Question{
		At: time.Date(2026, 1, 1, 23, 30, 0, 0, time.UTC), Joining: []consent.Node{newcomer},
		Members: []consent.Node{own, newcomer}, Bytes: 1000,
	}
)

// answers has policies asked the same question, and expects an objection with these words; none where they are empty.
func answers(t *testing.T, asked consent.Question, objections map[consent.Policy]string) {
	t.Helper()
	for policy, expected := range objections {
		objection := policy.Objection(asked)
		if (objection == "") != (expected == "") || !strings.Contains(objection, expected) {
			t.Errorf("%+v objects %q, expected %q", policy, objection, expected)
		}
		if err := policy.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyListedNodesAndSitesMayJoin(t *testing.T) {
	answers(t, question, map[consent.Policy]string{
		{}: "", {Allow: "b"}: "", {Allow: "c,b1"}: "", {Allow: "a,b2"}: `neither b1 nor its site "b" may join`,
	})
	question := question
	question.Joining = []consent.Node{{Name: "n9"}}
	answers(t, question, map[consent.Policy]string{
		{Allow: "a"}: "n9, which names no site, may not join", {Allow: "n9"}: "", {Allow: "a, n9"}: "",
	})
}

func TestTheSiteThatANodeNamesCountsNotWhereItsInstitutionIsProven(t *testing.T) {
	question := question
	question.Joining = []consent.Node{{Name: "k1", Site: "b", Proven: true, Institution: "beta"}}
	answers(t, question, map[consent.Policy]string{
		{Allow: "beta"}: "", {Allow: "k1"}: "", {Allow: "b"}: `neither k1 nor its institution "beta" may join`,
	})
	question.Joining = []consent.Node{{Name: "k2", Site: "b", Proven: true}}
	answers(t, question, map[consent.Policy]string{{Allow: "b"}: "k2, which no institution lists, may not join", {Allow: "k2"}: ""})
}

func TestNobodyMayJoinWhereTooFewSitesTakePart(t *testing.T) {
	answers(t, question, map[consent.Policy]string{{Sites: 2}: "", {Sites: 3}: "2 sites take part, and 3 must"})
}

func TestNobodyMayJoinOutsideOfTheHours(t *testing.T) {
	answers(t, question, map[consent.Policy]string{
		{Hours: "22:00-06:00"}: "", {Hours: "23:30-23:31"}: "", {Hours: "06:00-22:00"}: "it is 23:30 UTC",
		{Hours: "22:00-23:30"}: "nodes may join at 22:00-23:30", {Hours: "23:31-06:00"}: "it is 23:30",
	})
}

func TestNobodyMayJoinForWhomTooManyBytesMayBeGiven(t *testing.T) {
	answers(t, question, map[consent.Policy]string{{Bytes: 1000}: "", {Bytes: 999}: "it may have to give 1000 bytes"})
}

func TestWhereNobodyJoinsThereIsNothingToObjectTo(t *testing.T) {
	answers(t, consent.Question{Bytes: 1000}, map[consent.Policy]string{{Allow: "c", Sites: 9, Hours: "01:00-02:00", Bytes: 1}: ""})
}

func TestASettingThatIsNoPolicyIsNamed(t *testing.T) {
	for policy, expected := range map[consent.Policy]string{
		{Hours: "22-6"}: "REKNIT_CONSENT_HOURS", {Sites: -1}: "REKNIT_CONSENT_SITES", {Bytes: -1}: "REKNIT_CONSENT_BYTES",
		{Allow: "a b"}: "REKNIT_CONSENT_ALLOW", {Allow: "a,"}: "REKNIT_CONSENT_ALLOW", {Allow: "a;b1"}: "REKNIT_CONSENT_ALLOW",
	} {
		if err := policy.Validate(); err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("%+v: expected an error about %s, got %v", policy, expected, err)
		}
	}
}
