//! Letters that people do not see, or that make them see others elsewhere.

/// A character that is not seen, or makes others be seen elsewhere. Tabs are seen; the joiners U+200C and U+200D are what words of Persian
/// and many pictures are written with.
#[must_use]
pub fn hidden(letter: char) -> bool {
    letter.is_control() && letter != '\t' && letter != '\n'
        || turns(letter)
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Whether a letter changes the direction of what follows, so that a text is not what it looks like.
#[must_use]
pub const fn turns(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a letter is not seen itself and shapes the ones beside it, as in Persian words and in pictures of several.
#[must_use]
pub const fn shapes(letter: char) -> bool {
    matches!(letter, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}
