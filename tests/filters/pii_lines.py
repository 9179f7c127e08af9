"""Sentences with and without private data, labelled by hand, on which the stage ``pii`` is measured.

What a reader would call private is marked as ``⟦kind:…⟧``: e for an e-mail address, i for a public IP address, p for a
phone number, c for a payment-card number, b for an IBAN. Everything else is not to be found, however much it looks like
it. Marked is what a reader sees, not what the stage finds: some lines are beyond it. Addresses and numbers are invented
or reserved for examples, films and tests.

``LINES`` was read while the rules were made; ``HELD_OUT`` was written when they stood and did not change them.
"""

from __future__ import annotations

import re

KINDS = "eipcb"

MARKED = re.compile("⟦([eipcb]):([^⟧]*)⟧")

LINES = r"""
Please write to ⟦e:anna.schmidt@example.com⟧ before Friday.
Contact: ⟦e:j_doe+newsletter@mail.example.co.uk⟧; we answer within a day.
<a href="mailto:⟦e:info@example.org⟧?subject=Hello">write to us</a>
My address is ⟦e:o.k-99@sub-domain.example.net⟧.
From: Jane Roe <⟦e:jane.roe@example.edu⟧>
To: "Roe, Jane" <⟦e:jane@example.io⟧>, ⟦e:bob@example.io⟧
The author (⟦e:K.Tanaka@example.ac.jp⟧) thanks the referees.
Reply-To: ⟦e:support@xn--bcher-kva.example⟧
Schreiben Sie an ⟦e:info@bücher-müller.de⟧, wir antworten gern.
Пишите на ⟦e:почта@пример.рф⟧ или ⟦e:ivan@example.ru⟧.
請寫信到⟦e:wang.xiaoming@example.com.tw⟧，謝謝。
联系邮箱：⟦e:li_lei@example.cn⟧。
お問い合わせは⟦e:support@example.co.jp⟧まで。
문의는 ⟦e:help@example.co.kr⟧으로 보내 주세요.
메일 주소는 ⟦e:kim1987@example.kr⟧입니다.
راسلنا على ⟦e:info@example.ae⟧ من فضلك.
כתבו אל ⟦e:dana@example.co.il⟧ בבקשה.
संपर्क करें: ⟦e:rahul.k@example.in⟧
Email : ⟦e:contact@exemple.fr⟧, téléphone sur demande.
Escriba a ⟦e:maria-jose@ejemplo.es⟧ o llame.
ติดต่อ ⟦e:somchai@example.co.th⟧ ได้ทุกวัน
user name: ⟦e:12345678@example.com⟧
QQ邮箱 ⟦e:10000123@qq.example⟧ 可以联系我
⟦e:FIRST.LAST@EXAMPLE.COM⟧ is written in capitals.
Send patches to ⟦e:linux-dev@lists.example.org⟧ [1].
git config user.email "⟦e:dev@example.dev⟧"
__author__ = "Ann <⟦e:ann@example.name⟧>"
// Copyright 2019 B. Coder <⟦e:b.coder@example.software⟧>
{"email":"⟦e:carla@example.com⟧","id":17}
email=⟦e:dave@example.com⟧&next=1
'⟦e:eve@example.com⟧' OR 1=1
Write to ⟦e:frank@example.com⟧, ⟦e:grace@example.com⟧,⟦e:heidi@example.com⟧.
"⟦e:ivan.petrov@example.com⟧": "admin"
See **⟦e:judy@example.com⟧** or __⟦e:mallory@example.com⟧__.
＜⟦e:niaj＠example.com⟧＞までご連絡ください。
e-mail:⟦e:olivia@example.com⟧/fax on request
Is it ⟦e:peggy@example.com⟧? Or ⟦e:trent@example.museum⟧!
⟦e:walter@example.com⟧-Phone lines are closed.
The list is ⟦e:very.long.local-part_with.many.pieces+and-tags@a.b.c.d.example.com⟧
<⟦e:20240131.ABCDEF@mailer.example.com⟧> was the identifier of the message.
This is how he writes it: ⟦e:john [at] example [dot] com⟧
Reach me at ⟦e:sybil (at) example.com⟧ any time.
Mein Konto: ⟦e:erika.mustermann@example.de⟧ (privat)
Vá lá, mande para ⟦e:joao.silva@exemplo.com.br⟧ hoje.
Skriv till ⟦e:åsa@exempel.se⟧ eller ring.
Gửi thư đến ⟦e:nguyen.van.a@example.vn⟧ nhé.
Bize ⟦e:ayse@ornek.com.tr⟧ adresinden ulaşın.
Η διεύθυνση είναι ⟦e:maria@example.gr⟧.
Napisz na ⟦e:kontakt@przyklad.pl⟧ albo zadzwoń.
Írjon a ⟦e:peter@pelda.hu⟧ címre.
Mail ⟦e:user%example.com@relay.example.org⟧ still works there.
In Python @staticmethod and x@y are no addresses; neither is user@host.
Follow @example_user and @someone.else on the network.
Clone it with git clone git@code.example.com:team/project.git and build.
The remote is ssh://deploy@build.example.com/srv/repo.
Use https://user:secret@api.example.com/v1 for the call.
ftp://anonymous:guest@ftp.example.org/pub holds the files.
npm install lodash@4.17.21 and react@18.2.0-rc.1 first.
The images are icon@2x.png, icon@3x.png and logo@2x.webp.
result = A@B.transpose() + x@w.dot(y)
@Override public String toString() { return "a@b"; }
Three apples @ 1.50 each, two pears @ 0.80.
Meet @noon. See you @home.
docker pull registry.example.com/app@sha256:9f86d081884c7d65
scp report.txt anna@host:/tmp/report.txt
The operator @ multiplies matrices: C = A @ B.
@media (max-width: 600px) { a { color: red } }
The handle @name@social.example is for another network.
foo@bar and foo@.com and @example.com are incomplete.
He wrote name@example..com by mistake.
See RFC 5322 for what "@" means in an address.
pip install "package @ https://files.example.org/package.zip"
import x from "@scope/package.name";
{{ user@domain }} is a placeholder.
The decorator is @app.route("/index.html").
Preis: 5 Stück @ 3,20 Euro.
The name server answers at ⟦i:8.8.8.8⟧ and at ⟦i:93.184.216.34⟧:8080 today.
ping ⟦i:1.1.1.1⟧ says 12 ms.
Blocked: ⟦i:45.33.32.156⟧, ⟦i:104.16.132.229⟧ and ⟦i:151.101.1.69⟧.
⟦i:208.67.222.222⟧ - - [10/Oct/2023:13:55:36 +0000] "GET / HTTP/1.1" 200 2326
ssh root@⟦i:185.199.108.153⟧ -p 2222
http://⟦i:140.82.121.4⟧/index.html was down.
The range ⟦i:62.4.0.1⟧-⟦i:62.4.0.254⟧ belongs to them.
The route is ⟦i:80.81.192.0⟧/21 via the exchange.
client=⟦i:203.0.112.9⟧ user=- status=200
Der Server hat die Adresse ⟦i:217.160.0.1⟧.
服务器地址是⟦i:114.114.114.114⟧，请记录。
IPは⟦i:202.12.27.33⟧です。
Его адрес ⟦i:77.88.8.8⟧, проверьте.
주소는 ⟦i:168.126.63.1⟧입니다.
"ip": "⟦i:9.9.9.9⟧",
nameserver ⟦i:2001:4860:4860::8888⟧
It answers on ⟦i:2606:4700:4700::1111⟧, too.
[⟦i:2620:fe::fe⟧]:53 is the resolver.
curl http://[⟦i:2a00:1450:4001:830::200e⟧]/
The prefix ⟦i:2a02:26f0:1700::⟧/48 is theirs.
ip6:⟦i:2607:f8b0:4005:805::200e⟧ ~all
Full form: ⟦i:2001:0470:0000:0064:0000:0000:0000:0002⟧.
It was ⟦i:::ffff:8.8.4.4⟧ in the log, that is ⟦i:8.8.4.4⟧.
Connected from ⟦i:64.62.197.2⟧ port 40022 ssh2
Whois ⟦i:5.9.0.0⟧ says Germany.
X-Forwarded-For: ⟦i:91.198.174.192⟧, 10.0.0.3
<ip>⟦i:66.249.66.1⟧</ip>
The router has 192.168.1.1 inside and 10.0.0.7 behind it.
Open http://127.0.0.1:8000 or http://localhost:8000.
Examples use 192.0.2.1, 198.51.100.7 and 203.0.113.200.
The mask is 255.255.255.0 and the broadcast 192.168.0.255.
Multicast goes to 224.0.0.251 and 239.255.255.250.
Bind to 0.0.0.0 or to ::1 or ::.
Link local: fe80::1ff:fe23:4567:890a%eth0 and 169.254.10.1.
The docs use 2001:db8::1 and 2001:db8:85a3::8a2e:370:7334.
Unique local fd12:3456:789a:1::1 stays inside.
Docker gives 172.17.0.2, carriers 100.64.3.1.
See section 1.2.3.4.5 and the build 300.1.2.3 of the tool.
Measured values: 0.25.0.75, 12.5 and 1.000.000.000 in all.
Release 2.0.0.1 fixes the crash of release 2.0.0.0.
Chrome/96.0.4664.110 and Firefox/3.0.0.1 were seen.
Requires foo==1.2.3.4 or bar>=2.0.0.1.
v1.2.3.4 comes after 1.2.3-4.
Version 10.4.11.2 of the firmware is current.
See § 4.2.1.3 of the contract and chapter 3.1.4.1 of the book.
library-1.2.3.4.tar.gz and libfoo.so.1.2.3.4 are files.
The driver version is 31.0.15.3623 for that card.
Assembly version: 4.0.0.1, Culture=neutral
OID 1.3.6.1.4.1.311 is an arc, and so is 2.5.29.15.
Er liest Abschnitt 2.4.1.7 vor.
At 12:30:45 the train left; at 08:15 it had come.
MAC 00:1A:2B:3C:4D:5E and aa:bb:cc:dd:ee:ff are hardware.
std::vector<int> and Foo::Bar::baz() are scopes.
dead::beef is a name in this code, and face::cafe another.
x[::2], x[1::2] and a[10::-1] are slices.
Ratio 16:9 or 4:3, score 21:19, time 1:02:03.4.
The hash is 12:34:56:78:9a:bc:de:f0:11:22:33:44:55:66:77:88.
Genesis 1:1-2:3 and Psalm 119:105.
2024-01-31T12:30:45.123+01:00 is a timestamp.
Der Aufzug hält um 1.2.2024 in 3.4 Minuten.
The score was 10.9.8.7 before the change of rules.
rgb(1.2.3.4) is not a colour.
Set the update 5.10.16.3 of the kernel 4.19.128.1 aside.
Call ⟦p:+1 415-555-0132⟧ for help.
Call ⟦p:(415) 555-0132⟧ or ⟦p:415-555-0133⟧, extension 12.
Phone: ⟦p:415.555.0134⟧
Toll free: ⟦p:1-800-555-0199⟧.
It is ⟦p:+1 (212) 555-0187⟧, not ⟦p:1 (212) 555-0188⟧.
⟦p:212-555-0145⟧ is the desk; room 12.
tel:⟦p:+12125550146⟧
<a href="tel:⟦p:212-555-0147⟧">Call</a>
London: ⟦p:+44 20 7946 0958⟧ or ⟦p:020 7946 0959⟧.
UK mobile ⟦p:+44 7700 900123⟧, at home ⟦p:07700 900124⟧.
Ring ⟦p:+44 (0)161 496 0123⟧ after six.
Manchester ⟦p:(0161) 496 0124⟧
Berlin: ⟦p:+49 30 23125 011⟧, Fax ⟦p:030/23125012⟧.
Sie erreichen uns unter ⟦p:0171 3920012⟧ oder ⟦p:0049 40 66969 123⟧.
Tel.: ⟦p:(040) 66969-124⟧
Telefon ⟦p:089/1234567⟧
Mobil: ⟦p:0171-39200 33⟧
Appelez le ⟦p:01 99 00 12 34⟧ ou le ⟦p:06 39 98 56 78⟧.
Tél : ⟦p:+33 1 99 00 56 78⟧
Numéro : ⟦p:04.65.71.23.45⟧.
Depuis l'étranger : ⟦p:0033 1 99 00 56 79⟧.
Llame al ⟦p:+34 912 345 678⟧ o al móvil ⟦p:612 345 678⟧.
Teléfono: ⟦p:91 234 56 78⟧
Chiami ⟦p:+39 06 1234 5678⟧ oppure ⟦p:02 1234 5678⟧.
Cellulare ⟦p:+39 333 1234567⟧.
Ligue para ⟦p:(11) 91234-5678⟧ ou ⟦p:+55 21 3123-4567⟧.
Telefone: ⟦p:(21) 3123-4568⟧
WhatsApp ⟦p:+55 11 91234 5679⟧
Звоните ⟦p:+7 495 123-45-67⟧ или ⟦p:8 (800) 555-35-35⟧.
тел. ⟦p:8-916-123-45-67⟧
Телефон: ⟦p:495 123 45 67⟧
电话：⟦p:010-65529988⟧，手机：⟦p:13800138000⟧。
请拨打⟦p:138-0013-8001⟧联系我。
手机号码 ⟦p:139 0013 8002⟧ 微信同号
國際電話 ⟦p:+886 2 2345 6789⟧
電話番号は⟦p:03-1234-5678⟧です。
携帯は⟦p:090-1234-5678⟧、会社は⟦p:０３－１２３４－５６７９⟧です。
전화 ⟦p:02-312-3456⟧ 또는 ⟦p:010-1234-5678⟧로 연락 주세요.
연락처: ⟦p:010 1234 5679⟧
대표번호 ⟦p:+82-2-312-3457⟧
اتصل على ⟦p:+971 50 123 4567⟧ الآن.
هاتف: ⟦p:٠١٢٣٤٥٦٧٨٩⟧
تلفن ⟦p:۰۲۱-۱۲۳۴۵۶۷۸⟧
טלפון: ⟦p:03-123-4567⟧
फोन: ⟦p:+91 98765 43210⟧
Mobile ⟦p:98765 43211⟧ (India)
โทร ⟦p:02-123-4567⟧ หรือ ⟦p:081-234-5678⟧
Điện thoại ⟦p:+84 24 1234 5678⟧
Gọi ⟦p:090 123 4567⟧ nhé.
Sydney ⟦p:(02) 5550 1234⟧, mobile ⟦p:0491 570 156⟧.
From abroad: ⟦p:+61 2 5550 1235⟧
Stockholm: ⟦p:+46 8 465 004 12⟧, ring ⟦p:08-465 004 13⟧.
Göteborg ⟦p:031-390 06 12⟧
Oslo: ⟦p:+47 21 49 86 00⟧
Tlf. ⟦p:21 49 86 01⟧
København ⟦p:+45 33 12 34 56⟧
Puhelin ⟦p:+358 9 123 4567⟧
Bel ⟦p:+31 20 123 4567⟧ of ⟦p:020-1234568⟧.
GSM ⟦p:0470 12 34 56⟧
Zürich: ⟦p:+41 44 123 45 67⟧ / ⟦p:044 123 45 68⟧
Wien ⟦p:+43 1 234567890⟧
Zadzwoń: ⟦p:+48 22 123 45 67⟧, kom. ⟦p:512 345 678⟧
Volejte ⟦p:+420 212 345 678⟧.
Hívja a ⟦p:+36 1 234 5678⟧ számot.
Τηλ. ⟦p:210 1234567⟧
Telefon: ⟦p:0212 555 12 34⟧
İstanbul ⟦p:+90 212 555 12 35⟧
Call me at ⟦p:5551234⟧ tonight.
My phone number is ⟦p:555-0123⟧.
fax no. ⟦p:2125550148⟧
⟦p:(+49) 30 23125 013⟧ is the form some people like.
(phone ⟦p:0711 123456⟧; closed on Mondays)
phone=⟦p:415-555-0149⟧
Nairobi ⟦p:+254 20 123 4567⟧, Lagos ⟦p:+234 1 234 5678⟧
Johannesburg ⟦p:+27 11 123 4567⟧, ⟦p:011 123 4568⟧
Ciudad de México: ⟦p:+52 55 1234 5678⟧
Buenos Aires ⟦p:+54 11 4123-4567⟧
Jakarta ⟦p:+62 21 1234 5678⟧, HP ⟦p:0812-3456-7890⟧
Manila ⟦p:+63 2 8123 4567⟧
Singapore ⟦p:+65 6123 4567⟧
Hong Kong ⟦p:+852 2123 4567⟧
Auckland ⟦p:+64 9 123 4567⟧
Kyiv ⟦p:+380 44 123 4567⟧
Dublin ⟦p:+353 20 912 3456⟧ or ⟦p:020 912 3457⟧
Name,⟦p:415-555-0150⟧,Oakland
7;⟦p:+44 20 7946 0960⟧;London
In 2019 ⟦p:415-555-0151⟧ was his number.
The meeting is on 2024-01-31 from 10:00 to 11:30.
Born 01-02-1990, died 03.04.2020, aged 30.
01.02.2024 10:30 and 31/12/1999 23:59 are times.
Between 1990-1995 and 2001-2005 nothing happened.
ISBN 978-3-16-148410-0 and ISBN 0-306-40615-2.
ISBN 9783161484100, ISSN 0317-8471.
EAN 4006381333931, article 4006381333948.
Order 2024-000123-45 shipped, tracking 1Z999AA10123456784.
Order no. 123-4567890-1234567 was cancelled.
Invoice 0012-3456-789 of 5 May.
Springfield, MA 02139-4307 and 10001-1234.
The SSN field holds 123-45-6789 in this test.
Population: 1 234 567 in 2010, 1 345 678 in 2020.
1,234,567.89 dollars and 9.876.543,21 Euro.
pi is 3.14159 26535 89793 23846.
0.1234567890 and 00123456789 are numbers.
Numbers drawn: 03 12 25 34 41 and 07.
01 02 03 04 05 06 07 08 09 10
1 2 3 4 5 6 7 8 9 10 11 12
12 345 678 901 234 567 890
$415-555 is no price; -415.55 is.
UTC+0100, GMT+09:30, +1000000 points, +20 %.
x + 1234567 = y - 7654321
f(12345678) and g(+12345678)
Timestamps: 1700000000, 1700000000123, 1700000000123456.
Unix time 1234567890 was a party.
Job 13800138000 finished.
Item 0815-4711 and part 555-1234-A are in stock.
Room 212-555 is on the left.
Matrix row: 020 030 040 050 060
Coordinates 48.858222, 2.294500 and 40.712776,-74.005974.
Lat/Lon 52 31 12 / 13 24 18
Bytes 00 11 22 33 44 55 66 77
Dump: 0000000 457f 464c 0102 0001 0000 0000
Pages 123-456, 789-1011, 1213-1415.
The scores were 415-555 and 212-210 after 10 games.
Arxiv 2306.01116, DOI 10.1000/182, PMID 12345678.
US patent 5,960,411 and EP 1234567 B1.
Flight 1234, gate 56, seat 07-08.
The ratio 10-15-20-25 holds for steps 100-200-300.
Die Auflage beträgt 0,123 4567 Prozent.
Zug 0815 fährt um 12.45 Uhr auf Gleis 3/4.
Model RX-0171-1234567-B ships in May.
The serial is SN0171/1234567/X.
2024/01/31 and 31-01-2024 and 2024.01.31 again.
ID 123456789012345678 and 9876543210.
Set A = {1, 12, 123, 1234567}.
Bible verse 3 16 and hymn 415.
Seit 1990 1995 2000 2005 gibt es 4 Wahlen.
0x7fffffff, 0755, 0644 and 1e10.
Year 2019-2020: 12 345 visitors; 2020-2021: 6 789.
Distance 384 400 km, speed 299 792 458 m/s.
The key is 1234-5678-9012-3456-7890.
Case 20-1234567 and docket 19-7654321.
Call number 025.3/1234567 is a book.
Version code 02010300 of build 20240131.
Card: ⟦c:4111 1111 1111 1111⟧, expires 12/27.
Visa ⟦c:4111111111111111⟧
Pay with ⟦c:5555-5555-5555-4444⟧ or ⟦c:5105105105105100⟧.
Amex ⟦c:3782 822463 10005⟧ cvv 1234
amex: ⟦c:371449635398431⟧
Discover ⟦c:6011 1111 1111 1117⟧
Diners ⟦c:3056 930902 5904⟧ and ⟦c:38520000023237⟧
JCB ⟦c:3530 1113 3330 0000⟧
UnionPay ⟦c:6200 0000 0000 0005⟧
银联卡号：⟦c:6222021234567890128⟧。
カード番号は⟦c:４１１１　１１１１　１１１１　１１１１⟧です。
Mastercard ⟦c:2223 0031 2200 3222⟧ 123
card=⟦c:4012-8888-8888-1881⟧&x=1
"number": "⟦c:4242424242424242⟧"
Kreditkarte: ⟦c:4000 0566 5566 5556⟧, danke.
Carte : ⟦c:5200 8282 8282 8210⟧.
Карта ⟦c:2200 1234 5678 9019⟧
numéro ⟦c:4222222222222⟧ (13 chiffres, disparu)
rahul,⟦c:4000-0025-0000-3155⟧,2027
Test numbers: ⟦c:6011000990139424⟧; ⟦c:3566002020360505⟧.
4111 1111 1111 1112 has a wrong check digit.
4111111111111111123456 is too long, 411111111111111 too short.
1234 5678 9012 3456 is only an example.
The id is 7992739871320045 and the other 9111111111111111.
A number in a number: 99411111111111111199.
IMEI 356938035643809 and ICCID 8991101200003204510.
0.4111111111111111 is a decimal fraction.
0000 0000 0000 0000 and 1111 1111 1111 1111
user_4111111111111111 and x4111111111111111y
https://example.com/p/4111111111111111
4111 1111 1111 1111 2222 3333 4444 is a row of a table.
hex 4111111111111111abcdef
Tweet 1234567890123456789 got 5 likes.
GTIN 00012345600012, SSCC 340123450000000018.
Tracking 9400110200881234567890.
1111-2222-3333-4444 belongs to nobody.
UUID 41111111-1111-4111-8111-111111111111
IBAN: ⟦b:DE89 3704 0044 0532 0130 00⟧
Überweisen Sie an ⟦b:DE89370400440532013000⟧.
iban ⟦b:de89 3704 0044 0532 0130 00⟧ klein geschrieben
⟦b:GB82 WEST 1234 5698 7654 32⟧ is in London.
In lower case: ⟦b:gb82west12345698765432⟧
IBAN ⟦b:FR14 2004 1010 0505 0001 3M02 606⟧, merci.
⟦b:NL91ABNA0417164300⟧ t.n.v. Jansen
België: ⟦b:BE68 5390 0754 7034⟧
⟦b:CH93 0076 2011 6238 5295 7⟧
Konto ⟦b:AT61 1904 3002 3457 3201⟧ in Wien
IBAN:⟦b:ES9121000418450200051332⟧
⟦b:IT60 X054 2811 1010 0000 0123 456⟧ (Milano)
Konto: ⟦b:PL61 1090 1014 0000 0712 1981 2874⟧
⟦b:SE45 5000 0000 0583 9825 7466⟧
⟦b:NO93 8601 1117 947⟧ og ⟦b:DK50 0040 0440 1162 43⟧
⟦b:FI21 1234 5600 0007 85⟧
⟦b:PT50-0002-0123-1234-5678-9015-4⟧
⟦b:GR16 0110 1250 0000 0001 2300 695⟧
"iban": "⟦b:IE29AIBK93115212345678⟧"
⟦b:SA03 8000 0000 6080 1016 7519⟧
⟦b:TR33 0006 1005 1978 6457 8413 26⟧ hesabına
⟦b:MT84 MALT 0110 0001 2345 MTLC AST0 01S⟧
Счёт ⟦b:UA213223130000026007233566001⟧
Бг сметка ⟦b:BG80 BNBG 9661 1020 3456 78⟧.
DE88 3704 0044 0532 0130 00 has wrong check digits.
DE89 3704 0044 0532 0130 is too short.
XX89 3704 0044 0532 0130 00 is no country.
GB82 WEST 1234 5698 7654 33 was mistyped.
The code is AT12 and DE34, the part FR14-2004.
de305d54-75b4-431b-adb2-eb6b9e546014 is a UUID.
sha1 da39a3ee5e6b4b0d3255bfef95601890afd80709
LV-12 and NO-93 are on the map; SE45 is a motor.
Write ⟦e:anna@example.com⟧, call ⟦p:+49 30 23125 014⟧, pay to ⟦b:DE89 3704 0044 0532 0130 00⟧.
⟦e:2125550199@sms.example.com⟧ reaches a phone.
The log says ⟦i:8.8.8.8⟧ sent mail to ⟦e:root@example.com⟧ with card ⟦c:4111 1111 1111 1111⟧.
""".strip("\n").split("\n")

HELD_OUT = r"""
Hi all, my new work address is ⟦e:priya.nair@consulting.example⟧ – the old one (⟦e:pnair@example.in⟧) bounces.
Kind regards, Tom Baker | ⟦p:+44 117 496 0999⟧ | ⟦e:t.baker@bristol.example⟧
Kontakt: Dr. Weiß, Raum 4.12, Tel. ⟦p:+49 (0)89 99998-100⟧, E-Mail ⟦e:weiss@uni.example⟧
Ansprechpartner/in: ⟦e:bewerbung@example.de⟧ (Kennziffer 2023/0815)
rsync -av ./site deploy@web01:/var/www && mail -s done ⟦e:ops@example.net⟧
2023-11-05T08:12:44Z sshd[1123]: Failed password for invalid user admin from ⟦i:185.220.101.4⟧ port 51234 ssh2
2023-11-05 08:12:45,113 INFO 10.20.30.40 connected, took 0.123 s
⟦i:34.117.59.81⟧ - frank [05/Nov/2023:08:12:44 +0100] "POST /login HTTP/2" 302 0 "-" "Mozilla/5.0 (X11; Linux x86_64)"
The advisory affects 9.1.2.3 through 9.1.2.8 of the appliance.
Upgrade from release 12.2.0.1 to 19.3.0.0 before June.
Our gateway is ⟦i:88.198.5.7⟧/28, the peer ⟦i:88.198.5.8⟧.
dig @⟦i:8.8.4.4⟧ example.org AAAA +short
AAAA ⟦i:2a03:2880:f12f:83:face:b00c:0:25de⟧
IPv6-Adresse: ⟦i:2003:e6:1f2a:4400:9d3c:1:2:3⟧ (dynamisch)
sudo ip addr add 2001:db8:1::2/64 dev eth0
allow 10.0.0.0/8; allow 172.31.255.1; deny all;
DNS: ⟦i:223.5.5.5⟧、⟦i:223.6.6.6⟧
Remote host ⟦i:195.135.220.15⟧, reverse 15.220.135.195.in-addr.arpa
The mean went from 4.2.1.0 in the draft to 4.2.2.0.
assert parse("10.9.8.7") != parse("10.9.8.6")
時刻は１２：３０：４５、比率は３：２です。
Sie wurde am 05.11.1978 geboren und wohnt in 80331 München.
Rufen Sie an: ⟦p:0800 5550 123⟧ (kostenlos)
Hotline ⟦p:01805-555012⟧ (14 ct/min)
Büro ⟦p:+49-711-55501-23⟧ · Mobil ⟦p:+49 160 5550123⟧
Hausnummer 12-14, 3. Stock, 70173 Stuttgart
Standard: ⟦p:0345 555 0123⟧; textphone ⟦p:018001 555 0124⟧.
Call us now on ⟦p:01632 960123⟧ or text ⟦p:07700 900 456⟧!
ring 999 in an emergency, 101 otherwise
Mon-Fri 9-5, Sat 10-4, est. 1987
Office ⟦p:(312) 555-0176⟧ is written ⟦p:(312) 555-0176⟧ or ⟦p:312.555.0176⟧ or ⟦p:312 555 0176⟧.
Fax: ⟦p:1-312-555-0177⟧ x104
My cell's ⟦p:3125550178⟧, text me
TTY ⟦p:800-555-0179⟧
Section 312-555 of the code, paragraphs 10-20-30.
Serial: 312-5550-1764, lot 20231105
Téléphone : ⟦p:01.99.00.43.21⟧ - Portable : ⟦p:+33 (0)6 39 98 43 21⟧
Siret 732 829 320 00074, code APE 6201Z
N° TVA FR 40 303 265 045
Teléfono de contacto: ⟦p:+34 600 123 456⟧ / ⟦p:952 12 34 56⟧
NIF 12345678Z, expediente 2023/001234
Contato: ⟦p:(85) 98888-1234⟧ ou ⟦e:vendas@loja.example⟧
CPF 123.456.789-09 e CNPJ 12.345.678/0001-95
Per informazioni: ⟦p:02/12345678⟧, cell. ⟦p:347 1234567⟧
Codice fiscale RSSMRA80A01H501U, P.IVA 01234567890
Телефон горячей линии: ⟦p:8-800-200-00-01⟧ (круглосуточно)
ИНН 7707083893, БИК 044525225, р/с 40702810900000005555
Моб.: ⟦p:+38 (050) 123-45-67⟧
客服热线：⟦p:400-810-1234⟧（工作日 9:00-18:00）
联系人：王先生 ⟦p:13912345678⟧
邮编 100080，身份证号 11010519491231002X
订单号 202311050812441234 已发货
TEL ⟦p:0120-123-456⟧（平日 9:00～17:00）
〒100-0001 東京都千代田区千代田1-1
FAX: ⟦p:(03) 5555-0123⟧
고객센터 ⟦p:1588-1234⟧
휴대전화: ⟦p:010.1234.5670⟧
사업자등록번호 123-45-67890, 우편번호 04524
주민등록번호 900101-1234567
Zavolejte na ⟦p:777 123 456⟧ nebo pište na ⟦e:novak@firma.example⟧
NIP 123-456-32-18, REGON 123456785, PESEL 44051401359
Tel. kom. ⟦p:+48 600 123 456⟧
Telefoon: ⟦p:+31 (0)6 12345678⟧ KvK 12345678
Ring mig på ⟦p:070-174 06 05⟧ efter klockan 18
Puh. ⟦p:040 123 4567⟧ tai ⟦e:matti.meikalainen@esimerkki.fi⟧
Sími ⟦p:+354 555 1234⟧
للتواصل: ⟦p:+966 50 123 4567⟧ أو ⟦e:info@sharika.example⟧
الهاتف: ⟦p:02 1234 5678⟧
تماس: ⟦p:+98 21 1234 5678⟧
Simu: ⟦p:+255 22 212 3456⟧
Phone numbers in this novel begin with 555, as in films.
Contact No.: ⟦p:+91-22-12345678⟧, Mob: ⟦p:9876543210⟧
Pin code 400001, GSTIN 27AAPFU0939F1ZV
Aadhaar 2345 6789 0123 is masked.
Telp ⟦p:(021) 5550 1234⟧
Hubungi ⟦p:+60 3-5550 1234⟧.
Liên hệ: ⟦p:0912.345.678⟧
Mã số thuế 0100109106-001
Tracking number: 9400 1000 0000 0000 0000 00
UPC 0 36000 29145 2; ASIN B07FZ8S74R
Bug 1234567, commit 3f2a9c1, build #20231105.3
The array holds 100 200 300 400 500 600 entries.
t = [0.01, 0.02, 0.05]; n = 1000000; seed = 123456789
const MAX = 9007199254740991; const ID = 4503599627370496;
for (i = 0; i < 10000000; i++) total += 1-2-3;
sizes: 1024x768, 1920-1080, 12.5-14.25 mm
K-1234-5678 and Q-987-654-3210 are part numbers.
ICD-10 code 250.00, CPT 99213, NPI 1234567893
Lat 37.7749 N, long 122.4194 W, alt 16-20 m
SHA-256 5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
BTC 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa
I paid with ⟦c:4532 0151 1283 0366⟧ last week and the clerk read it out.
CC: ⟦c:5425233430109903⟧ EXP: 03/28 CVV: 123
卡号 ⟦c:6222 0212 3456 7894⟧
Номер карты: ⟦c:2200700123456781⟧
Kartennummer ⟦c:4917-4845-8989-7107⟧;
carta: ⟦c:3714 496353 98431⟧
{"pan":"⟦c:6011000990139424⟧","cvv":"123"}
JCB-Karte ⟦c:3528 0000 0000 0007⟧ gesperrt
The terminal printed **** **** **** 0366 only.
PO 4532015112830367 and ref 5425233430109904
Meter reading 4532 0151 1283, customer 0366 1234
Gutscheincode 1234-5678-9012-3456
IBAN ⟦b:RO86RNCB0082044172850001⟧, beneficiar Ionescu
č. ú. ⟦b:CZ65 0800 0000 1920 0014 5399⟧
⟦b:HU42 1177 3016 1111 1018 0000 0000⟧ számlára
Sąskaita ⟦b:LT12 1000 0111 0100 1000⟧
Konts: ⟦b:LV04UNLA0050012345678⟧.
Arvelduskonto EE38 → ⟦b:EE38 2200 2210 2014 5685⟧
IBAN: HR3410010051863000160 has a digit too many.
účet ⟦b:SK3112000000198742637541⟧ (EUR)
TRR ⟦b:SI56 2633 0001 2039 086⟧
IBAN ⟦b:IL62 0108 0000 0009 9999 999⟧
⟦b:BR18 0036 0305 0000 1000 9795 493C 1⟧
rek.nr. ⟦b:nl39 rabo 0300 0652 64⟧
RIB : ⟦b:FR7630006000011234567890189⟧ BIC AGRIFRPP
⟦b:LU28 0019 4006 4475 0000⟧/BGLLLULL
Bankverbindung: BLZ 500 105 17, Konto 0648489890, ⟦b:DE12 5001 0517 0648 4898 90⟧
DE-12345-2023 is a ticket, and HU42 a bus.
SEPA creditor DE98ZZZ09999999999 is no account.
Vol. 12, No. 3-4, pp. 1234-1267, doi:10.1234/abcd.2023.0815
⟦e:first_last@student.uni.example⟧ AT the usual place
mail me: ⟦e:kim DOT lee AT example DOT org⟧
user@localhost and root@db-01 are accounts of machines.
<foo@@bar> and a@b are noise; @all please read.
Maven: org.example:lib:1.2.3@jar and npm i @types/node@20.8.10
SELECT * FROM t WHERE mail LIKE '%@example.com';
The XMPP id ⟦e:romeo@montague.example⟧/orchard is in the RFC.
Envoyé à ⟦e:Jean-Luc.PICARD@enterprise.example⟧!!!
""".strip("\n").split("\n")


def labelled(lines: list[str]) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """Return each sentence with start, end (in code points) and number of the kind of what is private in it."""
    found = []
    for line in lines:
        text, spans, position = "", [], 0
        for match in MARKED.finditer(line):
            text += line[position : match.start()]
            spans.append((len(text), len(text) + len(match[2]), KINDS.index(match[1])))
            text += match[2]
            position = match.end()
        found.append((text + line[position:], spans))
    return found
