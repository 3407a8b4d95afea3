"""The words of the phrasebook and what goes with what, as tables that `words` reads.

Every entry is one English lemma with exactly one German translation, so that the corpus is a function of its English
side. Restrictions on meaning (who drinks what, what can be red) are lists of groups or single nouns; "-noun" excludes.
"""

# English shows in its verb form what German leaves to adverbs; a verb takes part only where English is natural:
# g "is eating now", h "often eats", s "knows", p "ate yesterday", f "has already eaten", m "can eat".
# A letter that occurs more often is drawn more often.
ASPECTS = {
    "action": "gghpppfmmm",
    "event": "pppfmm",
    "mishap": "pppf",
    "routine": "hhppfmm",
    "state": "sspm",
    "possession": "ssp",
    "feeling": "s",
}

# Columns: singular, plural ("-": none), article and noun, plural; then more groups that the noun belongs to.
# weak: takes -n in all cases but one; own: can be "mine"; free: may stand without article.
NOUNS = {
    "person": """
        man men der Mann Männer
        woman women die Frau Frauen
        child children das Kind Kinder own
        boy boys der Junge Jungen weak
        girl girls das Mädchen Mädchen
        teacher teachers der Lehrer Lehrer own job
        doctor doctors der Arzt Ärzte own job
        student students der Student Studenten weak job
        neighbour neighbours der Nachbar Nachbarn weak own
        colleague colleagues der Kollege Kollegen weak own
        guest guests der Gast Gäste own
        tourist tourists der Tourist Touristen weak
        customer customers der Kunde Kunden weak
        waiter waiters der Kellner Kellner job
        nurse nurses die Krankenschwester Krankenschwestern job
        singer singers die Sängerin Sängerinnen job""",
    "kin": """
        brother brothers der Bruder Brüder own
        sister sisters die Schwester Schwestern own
        mother - die Mutter - own
        father - der Vater - own
        daughter daughters die Tochter Töchter own
        son sons der Sohn Söhne own
        aunt aunts die Tante Tanten own
        uncle uncles der Onkel Onkel own
        grandmother - die Großmutter - own
        friend friends der Freund Freunde own""",
    "animal": """
        dog dogs der Hund Hunde own
        cat cats die Katze Katzen own
        horse horses das Pferd Pferde own
        bird birds der Vogel Vögel own
        cow cows die Kuh Kühe own""",
    "food": """
        apple apples der Apfel Äpfel fruit
        banana bananas die Banane Bananen fruit
        tomato tomatoes die Tomate Tomaten fruit
        egg eggs das Ei Eier hot
        potato potatoes die Kartoffel Kartoffeln hot
        sausage sausages die Wurst Würste hot
        soup soups die Suppe Suppen hot
        cake cakes der Kuchen Kuchen
        bread - das Brot - free
        cheese - der Käse - free
        meat - das Fleisch - free hot
        rice - der Reis - free hot
        chocolate - die Schokolade - free""",
    "drink": """
        coffee - der Kaffee - free hot
        tea - der Tee - free hot
        milk - die Milch - free hot
        water - das Wasser - free hot
        beer - das Bier - free
        wine - der Wein - free
        juice - der Saft - free""",
    "text": """
        book books das Buch Bücher own
        newspaper newspapers die Zeitung Zeitungen own
        letter letters der Brief Briefe own written
        story stories die Geschichte Geschichten own written
        message messages die Nachricht Nachrichten own written""",
    "clothes": """
        coat coats der Mantel Mäntel own
        dress dresses das Kleid Kleider own
        shirt shirts das Hemd Hemden own
        hat hats der Hut Hüte own
        jacket jackets die Jacke Jacken own
        shoe shoes der Schuh Schuhe own
        skirt skirts der Rock Röcke own""",
    "vehicle": """
        car cars das Auto Autos own
        bicycle bicycles das Fahrrad Fahrräder own
        bus buses der Bus Busse public
        train trains der Zug Züge public""",
    "thing": """
        key keys der Schlüssel Schlüssel own
        bag bags die Tasche Taschen own lid
        umbrella umbrellas der Regenschirm Regenschirme own
        bottle bottles die Flasche Flaschen own lid vessel
        cup cups die Tasse Tassen own vessel
        glass glasses das Glas Gläser own vessel
        knife knives das Messer Messer own
        gift gifts das Geschenk Geschenke own lid
        ticket tickets die Fahrkarte Fahrkarten own
        flower flowers die Blume Blumen own
        suitcase suitcases der Koffer Koffer own lid
        camera cameras die Kamera Kameras own device
        telephone telephones das Telefon Telefone own device
        picture pictures das Bild Bilder own
        clock clocks die Uhr Uhren own device""",
    "furniture": """
        table tables der Tisch Tische own surface
        chair chairs der Stuhl Stühle own surface
        bed beds das Bett Betten own surface
        lamp lamps die Lampe Lampen own switch
        computer computers der Computer Computer own switch device
        door doors die Tür Türen lid
        window windows das Fenster Fenster lid""",
    "place": """
        house houses das Haus Häuser own building indoors
        room rooms das Zimmer Zimmer own indoors
        kitchen kitchens die Küche Küchen own indoors
        office offices das Büro Büros own indoors
        garden gardens der Garten Gärten own
        park parks der Park Parks
        city cities die Stadt Städte sight
        village villages das Dorf Dörfer sight
        school schools die Schule Schulen building
        church churches die Kirche Kirchen building sight
        hotel hotels das Hotel Hotels building
        restaurant restaurants das Restaurant Restaurants building
        museum museums das Museum Museen building sight
        hospital hospitals das Krankenhaus Krankenhäuser building
        theatre theatres das Theater Theater building
        library libraries die Bibliothek Bibliotheken building
        supermarket supermarkets der Supermarkt Supermärkte building
        station stations der Bahnhof Bahnhöfe building""",
}

# Columns: English, comparative; German (with the stem where they differ), comparative.
ADJECTIVES = """
    big bigger | groß größer | animal clothes vehicle thing furniture place -knife -ticket -key
    small smaller | klein kleiner | animal clothes vehicle thing furniture place child fruit cake
    old older | alt älter | person kin animal text clothes vehicle thing furniture place -boy -girl -child -flower
    new newer | neu neuer | text clothes vehicle thing furniture place job neighbour colleague
    young younger | jung jünger | person kin animal -boy -girl -child -grandmother -mother -father
    good better | gut besser | food drink text hotel restaurant job
    bad - | schlecht - | food drink text hotel restaurant
    beautiful more_beautiful | schön schöner | clothes place animal picture flower clock gift story \
-hospital -supermarket
    expensive more_expensive | teuer,teur teurer | clothes vehicle thing furniture hotel restaurant wine cheese \
meat -flower
    cheap cheaper | billig billiger | clothes vehicle thing furniture hotel restaurant wine cheese meat -gift
    red - | rot - | clothes vehicle thing furniture apple tomato house
    blue - | blau - | clothes vehicle thing furniture house bird
    green - | grün - | clothes vehicle thing furniture apple house bird
    black - | schwarz - | clothes vehicle thing furniture animal coffee tea -window
    white - | weiß - | clothes vehicle thing furniture animal house church
    brown - | braun - | clothes thing furniture animal egg -window
    yellow - | gelb - | clothes vehicle thing furniture house bird
    cold colder | kalt kälter | drink soup meat milk room kitchen office house church
    warm warmer | warm wärmer | soup milk bread coat jacket shirt room kitchen office house bed
    hot - | heiß - | hot -meat
    fresh - | frisch - | food milk water juice flower -soup -chocolate -rice
    long longer | lang länger | text coat dress skirt train -newspaper -message
    short shorter | kurz kürzer | text coat dress skirt -newspaper
    heavy heavier | schwer schwerer | bag suitcase table bed gift book camera chair
    interesting more_interesting | interessant interessanter | text place picture person -kitchen -room \
-supermarket -child -hospital
    boring - | langweilig - | text city village museum theatre school
    modern more_modern | modern moderner | building device lamp bus train kitchen office picture
    quiet - | ruhig - | place child horse -supermarket -station
    friendly - | freundlich - | person kin dog
    famous more_famous | berühmt berühmter | singer doctor museum church restaurant picture book theatre hotel uncle
    rich richer | reich reicher | man woman doctor tourist customer guest singer neighbour uncle aunt
    poor poorer | arm ärmer | man woman student child boy girl neighbour
    clever more_clever | klug klüger | person kin dog cat horse
    strong stronger | stark stärker | man boy coffee tea beer horse brother
    dirty - | schmutzig - | clothes vessel car window dog kitchen room table knife bag
    clean - | sauber - | clothes vessel car window kitchen room table knife hotel
    empty - | leer - | vessel suitcase bag bus train house room restaurant theatre
    full - | voll - | vessel suitcase bag bus train restaurant theatre
    sick - | krank - | person kin animal -doctor -nurse
    tired - | müde,müd - | person kin animal
    happy - | glücklich - | person kin -tourist
    sad - | traurig - | person kin story dog
    hungry - | hungrig - | person kin animal
    dark - | dunkel,dunkl - | room kitchen church house beer coat jacket
"""

# Columns: English forms and particle : German infinitive (prefix|verb), third person, participle (* with sein) :
# case of the object and aspects (see ASPECTS) : objects.
# "def": takes no indefinite object.
TRANSITIVE = """
    eat eats eating ate eaten : essen isst gegessen : acc action : food
    drink drinks drinking drank drunk : trinken trinkt getrunken : acc action : drink
    read reads reading read read : lesen liest gelesen : acc action : text
    write writes writing wrote written : schreiben schreibt geschrieben : acc action : written book
    buy buys buying bought bought : kaufen kauft gekauft : acc action : food drink text clothes vehicle thing \
furniture house -message -letter -door -window -bus -train -story
    sell sells selling sold sold : verkaufen verkauft verkauft : acc action : clothes vehicle thing furniture animal \
house fruit book newspaper -bus -train -door -window
    see sees seeing saw seen : sehen sieht gesehen : acc state : person kin animal vehicle place clothes
    find finds finding found found : finden findet gefunden : acc event : thing text clothes animal car hotel \
restaurant station -newspaper
    look looks looking looked looked for : suchen sucht gesucht : acc action : thing text clothes animal person kin \
station hotel
    need needs needing needed needed : brauchen braucht gebraucht : acc possession : thing clothes vehicle furniture \
doctor teacher nurse room friend -gift -bus -train
    have has having had had : haben hat gehabt : acc possession : thing clothes animal furniture \
car bicycle house garden room -door -window
    know knows knowing knew known : kennen kennt gekannt : acc feeling def : person kin text place -newspaper -message
    love loves loving loved loved : lieben liebt geliebt : acc feeling def : kin child man woman animal city village \
house garden flower
    like likes liking liked liked : mögen mag gemocht : acc feeling def : food drink person kin animal clothes text \
picture city house
    visit visits visiting visited visited : besuchen besucht besucht : acc action : person kin place -kitchen -room \
-supermarket -station -house
    meet meets meeting met met : treffen trifft getroffen : acc action : person kin
    ask asks asking asked asked : fragen fragt gefragt : acc action : person kin -child
    wear wears wearing wore worn : tragen trägt getragen : acc action : clothes
    draw draws drawing drew drawn : zeichnen zeichnet gezeichnet : acc action : animal house church flower child man \
woman car
    wash washes washing washed washed : waschen wäscht gewaschen : acc action : clothes vehicle fruit dog horse vessel \
potato child -hat -shoe -train
    cook cooks cooking cooked cooked : kochen kocht gekocht : acc action : soup potato egg rice meat tea coffee
    clean cleans cleaning cleaned cleaned : putzen putzt geputzt : acc action : window door kitchen room shoe office \
lamp house bicycle
    repair repairs repairing repaired repaired : reparieren repariert repariert : acc action : vehicle device chair \
table bed lamp door window umbrella
    forget forgets forgetting forgot forgotten : vergessen vergisst vergessen : acc mishap : thing clothes book letter \
story message -dress -skirt -clock
    lose loses losing lost lost : verlieren verliert verloren : acc mishap : key bag umbrella ticket suitcase camera \
hat jacket book letter telephone
    hear hears hearing heard heard : hören hört gehört : acc state : animal child train story message singer man woman \
telephone
    understand understands understanding understood understood : verstehen versteht verstanden : acc state : person \
kin story letter message book
    order orders ordering ordered ordered : bestellen bestellt bestellt : acc action : soup cake sausage egg cheese \
meat rice drink book
    take takes taking took taken : nehmen nimmt genommen : acc event : bus train bicycle car key umbrella room
    feed feeds feeding fed fed : füttern füttert gefüttert : acc action : animal child
    open opens opening opened opened : auf|machen macht aufgemacht : acc action : lid letter
    close closes closing closed closed : zu|machen macht zugemacht : acc action : door window bag suitcase bottle book
    turn turns turning turned turned on : ein|schalten schaltet eingeschaltet : acc action : switch camera telephone
    turn turns turning turned turned off : aus|schalten schaltet ausgeschaltet : acc action : switch camera telephone
    call calls calling called called : an|rufen ruft angerufen : acc action : person kin -child -tourist
    invite invites inviting invited invited : ein|laden lädt eingeladen : acc action : person kin -waiter -nurse
    pick picks picking picked picked up : ab|holen holt abgeholt : acc action : person kin -waiter -nurse
    try tries trying tried tried on : an|probieren probiert anprobiert : acc action : clothes
    bring brings bringing brought brought along : mit|bringen bringt mitgebracht : acc action : food drink text gift \
flower bottle camera chair knife friend -soup -message
    tidy tidies tidying tidied tidied up : auf|räumen räumt aufgeräumt : acc action : indoors garden table
    listen listens listening listened listened to : zu|hören hört zugehört : dat action : person kin
    help helps helping helped helped : helfen hilft geholfen : dat action : person kin animal
    thank thanks thanking thanked thanked : danken dankt gedankt : dat action : person kin
    answer answers answering answered answered : antworten antwortet geantwortet : dat action : person kin
    wait waits waiting waited waited for : warten wartet gewartet : auf+acc action : person kin public letter message
    talk talks talking talked talked to : sprechen spricht gesprochen : mit+dat action : person kin
    think thinks thinking thought thought of : denken denkt gedacht : an+acc action : person kin animal story
    dream dreams dreaming dreamt dreamt of : träumen träumt geträumt : von+dat action : house city village garden car \
horse dog dress cake woman man
"""

# Objects: a thing for somebody in the dative.
DITRANSITIVE = """
    give gives giving gave given : geben gibt gegeben : acc action : thing text food drink dog cat \
-clock -ticket -newspaper -story -message
    show shows showing showed shown : zeigen zeigt gezeigt : acc action : text clothes picture camera car bicycle \
house garden room kitchen city museum gift station animal -message
    send sends sending sent sent : schicken schickt geschickt : acc action : letter message gift picture book flower \
ticket suitcase
    bring brings bringing brought brought : bringen bringt gebracht : acc action : drink newspaper book letter soup \
cake bread cup glass bottle chair key umbrella flower gift lamp
    lend lends lending lent lent : leihen leiht geliehen : acc event : clothes vehicle book umbrella camera knife \
suitcase bag chair key -bus -train
"""

# Last column: what may follow (see `sentences`).
INTRANSITIVE = """
    sleep sleeps sleeping slept slept : schlafen schläft geschlafen : - action : home
    work works working worked worked : arbeiten arbeitet gearbeitet : - action : in city with
    dance dances dancing danced danced : tanzen tanzt getanzt : - action : in with
    sing sings singing sang sung : singen singt gesungen : - action : in with
    laugh laughs laughing laughed laughed : lachen lacht gelacht : - action : -
    play plays playing played played : spielen spielt gespielt : - action : in with
    live lives living lived lived : wohnen wohnt gewohnt : - state : home city with
    stay stays staying stayed stayed : bleiben bleibt geblieben* : - action : in city with
    go goes going went gone : gehen geht gegangen* : - action : to with
    travel travels travelling travelled travelled : reisen reist gereist* : - action : nach with
    drive drives driving drove driven : fahren fährt gefahren* : - action : nach to
    come comes coming came come back : zurück|kommen kommt zurückgekommen* : - action : from
    arrive arrives arriving arrived arrived : an|kommen kommt angekommen* : - action : city clock
    get gets getting got got up : auf|stehen steht aufgestanden* : - routine : clock
    wake wakes waking woke woken up : auf|wachen wacht aufgewacht* : - routine : clock
    go goes going went gone out : aus|gehen geht ausgegangen* : - action : with
    watch watches watching watched watched television : fern|sehen sieht ferngesehen : - action : in with
"""

# Verbs of saying and knowing, before "that" and "whether".
CLAUSAL = """
    know knows knowing knew known : wissen weiß gewusst : - feeling : that whether
    think thinks thinking thought thought : glauben glaubt geglaubt : - feeling : that
    hope hopes hoping hoped hoped : hoffen hofft gehofft : - feeling : that
    say says saying said said : sagen sagt gesagt : - feeling : that
"""
# Subjects that keep to a timetable.
TIMETABLE = """
    arrive arrives arriving arrived arrived : an|kommen kommt angekommen* : - routine : public
    leave leaves leaving left left : ab|fahren fährt abgefahren* : - routine : public
    open opens opening opened opened : auf|machen macht aufgemacht : - routine : museum library supermarket restaurant
    close closes closing closed closed : zu|machen macht zugemacht : - routine : museum library supermarket restaurant
"""

# What may keep people from having or using a thing.
FAULTS = "big small old bad expensive cold hot long short heavy boring strong dirty empty full sad dark"
