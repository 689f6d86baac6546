#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/object_s3_pure.h"

static bool text_of(const char *xml, const char *tag, char *out, size_t room)
{
    size_t pos = 0;
    return s3_xml_text(xml, strlen(xml), &pos, tag, out, room);
}

Test(xml, error_document)
{
    const char *xml =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>\n  <Code>NoSuchKey</Code>"
        "<Message>The &lt;key&gt; &amp; &#39;name&#x27; \xc3\xa9 &#233;</Message></Error>";
    char out[100];
    cr_assert(text_of(xml, "Code", out, sizeof out));
    cr_assert_str_eq(out, "NoSuchKey");
    cr_assert(text_of(xml, "Message", out, sizeof out));
    cr_assert_str_eq(out, "The <key> & 'name' \xc3\xa9 ?");
    cr_assert_not(text_of(xml, "RequestId", out, sizeof out));
}

Test(xml, tolerant)
{
    char out[16];
    cr_assert(text_of("<E xmlns='u'><Code a=\"1\"> \n Slow \t</Code>", "Code", out, sizeof out));
    cr_assert_str_eq(out, "Slow");
    cr_assert(text_of("<Code/>", "Code", out, sizeof out));
    cr_assert_str_eq(out, "");
    cr_assert(text_of("<CodeX>no</CodeX><Code>yes</Code>", "Code", out, sizeof out));
    cr_assert_str_eq(out, "yes");
    cr_assert(text_of("<Code>0123456789abcdefXYZ</Code>", "Code", out, sizeof out));
    cr_assert_str_eq(out, "0123456789abcde", "cut at the room");
    cr_assert(text_of("<Code>&nosuch; & &#; &#x; &#0;</Code>", "Code", out, sizeof out));
    cr_assert_str_eq(out, "&nosuch; & &#; ");
}

Test(xml, not_whole)
{
    const char *bad[] = { "",           "<",
                          "<Code",      "<Code>",
                          "<Code>x",    "<Code>x</Cod",
                          "Code",       "</Code>",
                          "<Code x=\"", "<html>&&& <Code>no end" };
    char out[16];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cr_expect_not(text_of(bad[i], "Code", out, sizeof out), "%s", bad[i]);
    }
}

/* Every cut of a document, in a block of just that size: AddressSanitizer sees a read too far. */
Test(xml, every_cut)
{
    const char *xml = "<L><Contents><Key>a&amp;b</Key><Size>1</Size></Contents><Contents/></L>";
    for (size_t n = 0; n <= strlen(xml); n++) {
        char *copy = malloc(n + 1), out[8];
        memcpy(copy, xml, n);
        char *exact = realloc(copy, n ? n : 1);
        size_t pos = 0, at, len;
        while (s3_xml_element(exact, n, &pos, "Contents", &at, &len)) {
            size_t in = 0;
            cr_assert(at + len <= n && pos <= n);
            (void)s3_xml_text(exact + at, len, &in, "Key", out, sizeof out);
        }
        free(exact);
    }
}

Test(xml, elements_one_after_the_other)
{
    const char *xml = "<L><C><K>1</K></C><C><K>2</K></C><C><K>3</K></C></L>";
    size_t pos = 0, at, len;
    for (int i = 1; i <= 3; i++) {
        char out[8];
        size_t in = 0;
        cr_assert(s3_xml_element(xml, strlen(xml), &pos, "C", &at, &len));
        cr_assert(s3_xml_text(xml + at, len, &in, "K", out, sizeof out));
        cr_assert(out[0] == (char)(48 + i) && !out[1]);
    }
    cr_assert_not(s3_xml_element(xml, strlen(xml), &pos, "C", &at, &len));
}

Test(time, dates_of_lists)
{
    cr_expect_eq(s3_time_ms("1970-01-01T00:00:01.999Z"), 1000);
    cr_expect_eq(s3_time_ms("2026-11-30T01:02:03Z"), 1796000523000);
    cr_expect_eq(s3_time_ms("2026-11-30"), -1);
    cr_expect_eq(s3_time_ms(""), -1);
    cr_expect_eq(s3_time_ms("Mon, 30 Nov 2026 01:02:03 GMT"), -1);
}
